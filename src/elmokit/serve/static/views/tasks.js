// Tasks: trained task models on a text: tagged spans, labels with probabilities, marked answers.

import { bars } from "../bars.js";
import { bdi, gap, h, percent, replace } from "../dom.js";
import { TEXTS } from "../examples.js";
import { figure } from "../figure.js";
import { t } from "../i18n.js";
import { COLORS, field, load } from "../widgets.js";

const MULTILINE = ["passage", "text"];
const SPANS = ["pronoun", "a", "b"];

export function render(root, context) {
  const { tasks } = context.about;
  if (tasks.length === 0) {
    replace(root, emptyView(t("noTasks"), "elmokit serve --task FOLDER"));
    return;
  }
  const task = tasks.find(({ name }) => name === context.get("task")) ?? tasks[0];
  const select = h(
    "select",
    {
      change: () => {
        context.set({ task: select.value });
        render(root, context);
        root.querySelector("select").focus();
      },
    },
    tasks.map(({ name, task: kind }) =>
      h(
        "option",
        { value: name, selected: name === task.name },
        name === kind ? name : `${name} (${kind})`,
      ),
    ),
  );
  const inputs = new Map(task.fields.map((name) => [name, input(name, task, context)]));
  const result = h("div", { class: "result" });
  const draw = () => {
    let example;
    try {
      example = read(inputs);
    } catch (problem) {
      replace(result, h("p", { class: "empty" }, problem.message));
      return;
    }
    load(
      result,
      () => context.api.predict(task.name, example),
      (answer) => replace(result, show(answer.predictions[0], example, task)),
    );
  };
  const submit = (event) => {
    event.preventDefault();
    context.set(Object.fromEntries([...inputs].map(([name, box]) => [name, box.value])));
    draw();
  };
  replace(
    root,
    h(
      "form",
      { class: "panel wide", submit },
      field(t("task"), select),
      [...inputs].map(([name, box]) => field(t(`field.${name}`), box, hint(name, task))),
      h("button", { type: "submit", class: "primary" }, t("predict")),
    ),
    result,
  );
  draw();
}

/** What to say where nothing was loaded. */
export function emptyView(text, command) {
  return h(
    "div",
    { class: "empty" },
    h("p", null, text),
    h("pre", { tabindex: "0" }, h("code", null, command)),
  );
}

function hint(name, task) {
  if (name === "text" && task.task === "relation") return t("relationHint");
  return SPANS.includes(name) ? t("spanHint") : undefined;
}

function input(name, task, context) {
  const texts = TEXTS[context.textLanguage];
  const examples = {
    text: task.task === "relation" ? texts.relation : texts.task,
    passage: texts.task,
    question: texts.question,
    first: texts.first,
    second: texts.second,
    predicate: "2",
  };
  if (task.task === "coreference") {
    Object.assign(examples, {
      text: "Anna met Maria after she had left Lund.",
      pronoun: "she",
      a: "Anna",
      b: "Maria",
    });
  }
  const value = context.get(name, examples[name] ?? "");
  const box = MULTILINE.includes(name)
    ? h("textarea", { rows: 3, required: true })
    : h("input", { type: name === "predicate" ? "number" : "text", min: 0, required: true });
  box.value = value;
  return box;
}

/** The example that the service reads; characters are counted as Python counts them. */
function read(inputs) {
  const text = inputs.get("text")?.value ?? "";
  return Object.fromEntries(
    [...inputs].map(([name, box]) => {
      if (name === "predicate") return [name, Number(box.value)];
      if (!SPANS.includes(name)) return [name, box.value];
      const start = text.indexOf(box.value);
      if (!box.value || start < 0) throw new Error(t("notInText", { text: box.value }));
      const before = Array.from(text.slice(0, start)).length;
      return [name, [before, before + Array.from(box.value).length]];
    }),
  );
}

function show(prediction, example, task) {
  const parts = [];
  if (prediction.spans || prediction.tags) parts.push(tagged(prediction, task));
  if (prediction.probabilities) parts.push(labels(prediction));
  if (prediction.answer !== null && prediction.answer !== undefined)
    parts.push(answer(prediction, example));
  if (prediction.text)
    parts.push(
      h(
        "section",
        { class: "panel" },
        h("h3", null, t("output")),
        h("p", { class: "quote" }, bdi(prediction.text)),
      ),
    );
  if (parts.length === 0 && prediction.label)
    parts.push(
      h(
        "section",
        { class: "panel" },
        h("h3", null, t("label")),
        h("p", { class: "quote" }, bdi(prediction.label)),
      ),
    );
  return parts;
}

function tagged({ tokens, tags, spans }, task) {
  const own =
    spans ??
    tags.map((label, i) => ({ start: i, end: i + 1, label })).filter(({ label }) => label !== "O");
  const kinds = [
    ...new Set([
      ...task.labels.map((tag) => tag.replace(/^[BIESLU]-/, "")),
      ...own.map(({ label }) => label),
    ]),
  ].filter((tag) => tag !== "O");
  const pieces = [];
  let i = 0;
  for (const { start, end, label } of [...own].sort((a, b) => a.start - b.start)) {
    for (; i < start; i++) pieces.push(gap(tokens, i), bdi(tokens[i]));
    if (i > start) continue;
    pieces.push(gap(tokens, i));
    const text = tokens
      .slice(start, end)
      .map((token, k) => (k ? gap(tokens, start + k) : "") + token);
    pieces.push(
      h(
        "mark",
        { class: `span g${kinds.indexOf(label) % COLORS}` },
        bdi(text.join("")),
        h("b", null, label),
      ),
    );
    i = end;
  }
  for (; i < tokens.length; i++) pieces.push(gap(tokens, i), bdi(tokens[i]));
  const content = h("p", { class: "tagged" }, pieces);
  const note = own.length ? undefined : t("noSpans");
  return figure({
    title: t("tagged"),
    note,
    name: `elmokit-${task.name}`,
    content,
    rows: () => [["token", "tag"], ...tokens.map((token, k) => [token, tags?.[k] ?? ""])],
  });
}

function labels({ probabilities, label }) {
  const shown = probabilities.slice(0, 20);
  const content = bars(
    shown.map((one) => one.label),
    shown.map((one) => one.probability),
    { label: t("labelsLabel", { label }), chosen: (name) => name === label },
  );
  return figure({
    title: t("labels"),
    name: "elmokit-labels",
    content,
    rows: () => [
      ["label", "probability"],
      ...probabilities.map((one) => [one.label, one.probability]),
    ],
  });
}

function answer({ answer: text, start, end, probability }, { passage = "" }) {
  const characters = Array.from(passage);
  const piece = (from, to) => characters.slice(from, to).join("");
  const content = h(
    "p",
    { class: "tagged" },
    start === null || start === undefined
      ? bdi(passage)
      : h(
          "bdi",
          { dir: "auto" },
          piece(0, start),
          h("mark", { class: "answer" }, piece(start, end)),
          piece(end),
        ),
  );
  const score =
    probability === null || probability === undefined ? "" : ` (${percent(probability, 1)})`;
  return figure({
    title: t("answer"),
    note: text ? h("span", null, bdi(text, { class: "term" }), score) : t("noAnswer"),
    name: "elmokit-answer",
    content,
    rows: () => [
      ["answer", "start", "end"],
      [text, start ?? "", end ?? ""],
    ],
  });
}
