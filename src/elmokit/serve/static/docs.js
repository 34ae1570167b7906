// Lists the routes of openapi.json. Texts are put in as text, never as markup.
"use strict";

function element(name, text, parent) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function resolve(schema, api) {
  if (!schema || !schema.$ref) return schema || {};
  const names = schema.$ref.replace("#/", "").split("/");
  return names.reduce((part, name) => part[name], api);
}

function typeOf(schema, api) {
  if (!schema) return "";
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, api)).join(" | ");
  if (schema.type === "array") return `list of ${typeOf(schema.items, api)}`;
  return schema.type || "any";
}

function fields(schema, api, parent) {
  const whole = resolve(schema, api);
  if (!whole.properties) {
    element("p", typeOf(whole, api), parent);
    return;
  }
  const table = element("table", undefined, parent);
  const head = element("tr", undefined, element("thead", undefined, table));
  for (const name of ["field", "type", "default", "meaning"]) {
    element("th", name, head).scope = "col";
  }
  const body = element("tbody", undefined, table);
  for (const [name, field] of Object.entries(whole.properties)) {
    const row = element("tr", undefined, body);
    element("code", name, element("td", undefined, row));
    element("td", typeOf(field, api), row);
    const needed = (whole.required || []).includes(name) ? "required" : "";
    element("td", field.default === undefined ? needed : JSON.stringify(field.default), row);
    element("td", field.description || "", row);
  }
}

function route(path, method, operation, api, parent) {
  const details = element("details", undefined, parent);
  const summary = element("summary", undefined, details);
  element("span", method.toUpperCase(), summary).className = "method";
  element("code", path, summary);
  element("p", operation.description || operation.summary || "", details);
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  if (body) {
    element("h3", "Request", details);
    fields(body, api, details);
  }
  element("h3", "Answers", details);
  for (const [status, answer] of Object.entries(operation.responses)) {
    element("p", `${status}: ${answer.description}`, details);
    const schema = answer.content?.["application/json"]?.schema;
    if (status === "200" && schema) fields(schema, api, details);
  }
}

async function show() {
  const target = document.getElementById("routes");
  try {
    const answer = await fetch("/openapi.json");
    if (!answer.ok) throw new Error(`the service answered ${answer.status}`);
    const api = await answer.json();
    target.textContent = "";
    const tags = new Map();
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        const tag = (operation.tags || ["Other"])[0];
        if (!tags.has(tag)) {
          const section = element("section", undefined, target);
          element("h2", tag, section);
          tags.set(tag, section);
        }
        route(path, method, operation, api, tags.get(tag));
      }
    }
  } catch (error) {
    target.textContent = `The routes cannot be shown: ${error.message}.`;
  }
}

show();
