// Where all data come from on a page without a server: the model runs in a worker of this page.
// The functions are those of the service's api.js, and so are their answers.

import { h, replace } from "./dom.js";
import { t, TEXTS } from "./i18n.js";
import { OWN_TEXTS } from "./texts.js";

export const MISSING_VIEWS = ["tasks", "search"]; // they need a service
export const MORE = "../";
export const footnotes = ({ tokenizer }) =>
  tokenizer.startsWith("chinese") ? ["onlyServed", "splitChinese"] : ["onlyServed"];

for (const [language, texts] of Object.entries(OWN_TEXTS)) Object.assign(TEXTS[language], texts);

/** What went wrong: "unreachable" if a file cannot be loaded, or "refused". */
export class ServiceError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

// The policy of the page also holds in a worker from a blob, but not in one from a file.
const code = `import ${JSON.stringify(new URL("./worker.js", import.meta.url).href)};`;
const blob = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
const worker = new Worker(blob, { type: "module" });
const waiting = new Map();
let count = 0;

function ask(name, ...values) {
  return new Promise((resolve, reject) => {
    count += 1;
    waiting.set(count, { resolve, reject });
    worker.postMessage({ id: count, name, values });
  });
}

worker.onmessage = ({ data: { id, answer, error, progress } }) => {
  if (progress) {
    showProgress(progress);
    return;
  }
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (!error) resolve(answer);
  else if (error.kind) reject(new ServiceError(error.kind, error.message));
  else reject(new Error(error.message));
};

worker.onerror = (event) => {
  event.preventDefault();
  for (const { reject } of waiting.values()) reject(new ServiceError("unreachable", event.message));
  waiting.clear();
};

// ---------------------------------------------------------------------- progress
let shown = 0;

function showProgress({ done, total }) {
  const box = document.getElementById("loading");
  box.hidden = done >= total;
  if (performance.now() - shown < 100 && !box.hidden) return;
  shown = performance.now();
  const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
  const text = t("loadingModel", { done: megabytes(done), total: megabytes(total) });
  replace(box, h("label", null, text, " ", h("progress", { max: total, value: done })));
}

// ---------------------------------------------------------------------- answers
let started = null;

/** What there is: the models, and that there are neither tasks nor an index. */
export function about() {
  started ??= (async () => {
    const response = await fetch(new URL("../models.json", import.meta.url));
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const found = await response.json();
    await ask("start", found);
    return found;
  })();
  return started.catch((error) => {
    started = null;
    throw new ServiceError("unreachable", error.message);
  });
}

/** Layers 0 to L of texts: { forward, backward, sentences: [{ tokens, layers }] }. */
export const layers = (model, inputs) => ask("layers", model, inputs).then(kept);

/** A word in many sentences: { uses, missing, layers: maps with vectors, static, clusters }. */
export const uses = (model, question) => ask("uses", model, question).then(kept);

/** How unexpected each token is: { sentences: [{ tokens, forward, backward, known }] }. */
export const surprisal = (model, inputs) => ask("surprisal", model, inputs).then(kept);

/** What else would fit in the place of a token: { words: [{ word, probability }] }. */
export const fill = (model, tokens, position, k = 10) => ask("fill", model, tokens, position, k);

function needsService() {
  throw new ServiceError("refused", "this needs elmokit serve");
}

export const predict = async () => needsService();
export const neighbours = async () => needsService();
export const setKey = () => {};

// ---------------------------------------------------------------------- offline
let isKept = false;

/** After the first answer, keep all files in the browser, so that the page opens offline. */
function kept(answer) {
  if (!isKept) {
    isKept = true;
    navigator.serviceWorker?.register(new URL("../sw.js", import.meta.url)).catch(() => {
      // Without it, in private windows for example, the page needs the network at every visit.
    });
  }
  return answer;
}
