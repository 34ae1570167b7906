// Where all data come from. The views call these functions and know nothing of HTTP: a page
// without a server replaces this module by one that computes the same answers.

const KEY = "elmokit-key";
export const MISSING_VIEWS = []; // those that cannot be shown
export const MORE = "docs"; // where the footer leads
export const footnotes = () => []; // keys of texts that the footer has for a model

/** What the service says when it does not do what was asked. */
export class ServiceError extends Error {
  constructor(kind, message, status = 0) {
    super(message);
    this.kind = kind; // "unreachable", "refused" or "key"
    this.status = status;
  }
}

let key = stored();

function stored() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** Use a key for all requests, until the tab is closed. */
export function setKey(value) {
  key = value.trim();
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // Without storage the key is asked for again after a reload.
  }
}

async function request(path, body) {
  const options = { headers: { accept: "application/json" }, cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  if (key) options.headers.authorization = `Bearer ${key}`;
  let response;
  let answer = null;
  try {
    response = await fetch(path, options);
    const text = await response.text();
    try {
      answer = JSON.parse(text);
    } catch {
      answer = null;
    }
  } catch (error) {
    throw new ServiceError("unreachable", error.message);
  }
  if (response.ok && answer !== null) return answer;
  const said = answer?.error?.message ?? answer?.error ?? `HTTP ${response.status}`;
  const kind = response.status === 401 ? "key" : "refused";
  throw new ServiceError(kind, String(said), response.status);
}

/** What is loaded: { data: models, tasks, index, limits, version }. */
export const about = () => request("v1/models");

/** Layers 0 to L of texts: { forward, backward, sentences: [{ tokens, layers }] }. */
export const layers = (model, inputs) => request("v1/layers", { model, inputs, layers: "all" });

/** A word in many sentences: { uses, missing, layers: maps with vectors, static, clusters }. */
export const uses = (model, question) =>
  request("v1/uses", { model, clusters: 0, neighbours: 5, vectors: true, ...question });

/** How unexpected each token is: { sentences: [{ tokens, forward, backward, known }] }. */
export const surprisal = (model, inputs) => request("v1/surprisal", { model, inputs });

/** What else would fit in the place of a token: { words: [{ word, probability }] }. */
export const fill = (model, tokens, position, k = 10) =>
  request("v1/fill", { model, input: tokens, position, k });

/** What a task model says about one input: { kind, predictions }. */
export const predict = (task, input) =>
  request(`v1/predict/${encodeURIComponent(task)}`, { inputs: [input] });

/** Uses in the index that are near a marked word: { query, neighbours, static }. */
export const neighbours = (input, k, only) => request("v1/neighbours", { input, k, only });
