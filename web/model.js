// A model in onnxruntime-web: layers of sentences, and how well words fit them.

import * as ort from "./ort/ort.wasm.bundle.min.mjs";
import { characterIds, tokenize } from "./tokenize.js";

const BATCH = { sentences: 32, tokens: 4096 };
const ROWS = 64; // of the softmax at a time: 30,000 words each
const CANDIDATES = 100; // words that are tried in a gap, as in Python
const FREQUENCY_WEIGHT = 0.5; // how far a word fits a gap is its probability / frequency ** this
const SPECIAL = ["<S>", "</S>", "<UNK>"];

/** What cannot be done, in one sentence for the reader. */
export class Refused extends Error {
  kind = "refused";
}

// ---------------------------------------------------------------------- files
/** What is downloaded, in bytes, and who wants to know. */
export const progress = { done: 0, total: 0, report: () => {} };

const failed = new Set();

async function download({ file, bytes }) {
  progress.total += bytes;
  let received = 0;
  const counted = (size) => {
    received += size;
    progress.done += size;
    progress.report();
  };
  try {
    // What could not be used is not taken from the cache of the browser again.
    const cache = failed.has(file) ? "reload" : "default";
    const response = await fetch(new URL(`../${file}`, import.meta.url), { cache });
    if (!response.ok) throw new Error(`${file}: HTTP ${response.status}`);
    const content = new Uint8Array(bytes);
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (received + value.length > bytes) throw new Error(`${file} has changed: reload the page`);
      content.set(value, received);
      counted(value.length);
    }
    if (received < bytes) throw new Error(`${file} is not complete`);
    return content;
  } catch (error) {
    progress.total -= bytes;
    progress.done -= received;
    progress.report();
    failed.add(file);
    error.kind = "unreachable";
    throw error;
  }
}

/** A function that is called once, and again only if it failed. */
function once(make) {
  let result = null;
  return () => {
    if (result === null) {
      result = make();
      result.catch(() => (result = null));
    }
    return result;
  };
}

let runtime = null;

/** Load the runtime itself, once for all models. */
function loadRuntime(file) {
  runtime ??= once(async () => {
    ort.env.wasm.numThreads = 1; // More need headers that a static site does not send.
    ort.env.wasm.wasmBinary = await download(file);
  });
  return runtime();
}

// ---------------------------------------------------------------------- model
export class Model {
  constructor(about, runtimeFile) {
    this.about = about;
    const session = (file) =>
      once(async () => {
        const [content] = await Promise.all([download(file), loadRuntime(runtimeFile)]);
        return ort.InferenceSession.create(content, { executionProviders: ["wasm"] });
      });
    const { files } = about;
    this.graph = session(files.graph);
    this.softmax = files.softmax && session(files.softmax);
    this.words =
      files.words &&
      once(async () => {
        const words = JSON.parse(new TextDecoder().decode(await download(files.words)));
        return { words, ids: new Map(words.map((word, i) => [word, i])) };
      });
  }

  /** Tokens of an input, which may be tokens already. */
  tokens(input) {
    return typeof input === "string" ? tokenize(input, this.about.tokenizer) : [...input];
  }

  /** Layers of sentences: a list of (layers, tokens, dimensions) as rows. */
  async layers(sentences) {
    const session = await this.graph();
    const order = sentences.map((_, i) => i);
    order.sort((a, b) => sentences[a].length - sentences[b].length);
    const results = Array(sentences.length);
    for (const batch of batches(order, sentences)) {
      const rows = await this.run(
        session,
        batch.map((i) => sentences[i]),
      );
      batch.forEach((i, k) => (results[i] = rows[k]));
    }
    return results;
  }

  async run(session, sentences) {
    const { data, dims } = characterIds(sentences, this.about.characters);
    const lengths = BigInt64Array.from(sentences, ({ length }) => BigInt(length));
    const { layers } = await session.run({
      character_ids: new ort.Tensor("int64", data, dims),
      lengths: new ort.Tensor("int64", lengths, [sentences.length]),
    });
    const [count, batch, words, size] = layers.dims;
    const row = (layer, i, j) => {
      const start = ((layer * batch + i) * words + j) * size;
      return layers.data.subarray(start, start + size);
    };
    return sentences.map((sentence, i) =>
      Array.from({ length: count }, (_, layer) => sentence.map((_, j) => row(layer, i, j))),
    );
  }

  // ------------------------------------------------------------------ language model
  /** What each direction has read before each position, and after the last: tokens + 1 rows. */
  states(top) {
    const half = this.about.dimensions / 2;
    const { forward, backward } = this.about.boundaries;
    return {
      forward: [Float32Array.from(forward), ...top.map((row) => row.subarray(0, half))],
      backward: [...top.map((row) => row.subarray(half)), Float32Array.from(backward)],
    };
  }

  /** -log p of a word after each row. */
  async losses(rows, targets) {
    const session = await this.softmax();
    const result = new Float32Array(rows.length);
    for (let start = 0; start < rows.length; start += ROWS) {
      const own = targets.slice(start, start + ROWS);
      const { losses } = await session.run(softmaxInputs(rows.slice(start, start + ROWS), own), [
        "losses",
      ]);
      result.set(losses.data, start);
    }
    return result;
  }

  /** -log2 p of each token in both directions: { tokens, forward, backward, known }. */
  async surprisal(tokens) {
    const [{ ids }, [layers]] = await Promise.all([
      this.words(),
      this.layers([tokens]),
      this.softmax(),
    ]);
    const { forward, backward } = this.states(layers.at(-1));
    const targets = tokens.map((token) => ids.get(token) ?? ids.get("<UNK>"));
    const bits = async (rows) =>
      Array.from(await this.losses(rows, targets), (loss) => loss / Math.LN2);
    return {
      tokens,
      forward: await bits(forward.slice(0, -1)),
      backward: await bits(backward.slice(1)),
      known: tokens.map((token) => ids.has(token)),
    };
  }

  /** The words that fit best in place of a token, as in Python: [{ word, probability, fit }]. */
  async fill(tokens, position, k) {
    const { words, ids } = await this.words();
    const [layers] = await this.layers([tokens]);
    const { forward, backward } = this.states(layers.at(-1));
    const session = await this.softmax();
    const around = [forward[position], backward[position + 1]];
    const { log_probabilities: both } = await session.run(softmaxInputs(around, [0, 0]), [
      "log_probabilities",
    ]);
    const proposed = words.map((_, i) => both.data[i] + both.data[words.length + i]);
    for (const mark of SPECIAL) proposed[ids.get(mark)] = -Infinity;
    const best = highest(proposed, Math.min(CANDIDATES, words.length - SPECIAL.length));
    const filled = best.map((i) => tokens.with(position, words[i]));
    const contexts = await this.contextScores(filled, position, ids);
    const scores = best.map((word, i) => (proposed[word] + contexts[i]) / 2);
    const probabilities = softmax(scores);
    const fits = softmax(scores.map((score, i) => score + FREQUENCY_WEIGHT * Math.log(best[i] + 1)));
    return highest(fits, k).map((i) => ({
      word: words[best[i]],
      probability: probabilities[i],
      fit: fits[i],
    }));
  }

  /** Log probability of the words around a gap for each filled sentence. */
  async contextScores(filled, position, ids) {
    const id = (word) => ids.get(word) ?? ids.get("<UNK>");
    const context = filled[0];
    const after = [...context.slice(position + 1), "</S>"].map(id);
    const before = ["<S>", ...context.slice(0, position)].map(id);
    const all = await this.layers(filled);
    const rows = all.flatMap((layers) => {
      const { forward, backward } = this.states(layers.at(-1));
      return [...forward.slice(position + 1), ...backward.slice(0, position + 1)];
    });
    const targets = [...after, ...before];
    const losses = await this.losses(
      rows,
      filled.flatMap(() => targets),
    );
    return filled.map((_, i) => {
      const own = losses.subarray(i * targets.length, (i + 1) * targets.length);
      return -own.reduce((sum, loss) => sum + loss, 0);
    });
  }
}

function softmax(scores) {
  const largest = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - largest));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

function softmaxInputs(rows, targets) {
  const size = rows[0].length;
  const states = new Float32Array(rows.length * size);
  rows.forEach((row, i) => states.set(row, i * size));
  return {
    states: new ort.Tensor("float32", states, [rows.length, size]),
    targets: new ort.Tensor("int64", BigInt64Array.from(targets, BigInt), [rows.length, 1]),
  };
}

/** Indices of the highest values, the highest first. */
function highest(values, count) {
  return Array.from(values, (_, i) => i)
    .sort((a, b) => values[b] - values[a])
    .slice(0, count);
}

/** Indices of sentences in batches, from an order by length. */
function batches(order, sentences) {
  const result = [];
  let batch = [];
  for (const i of order) {
    const isFull = (batch.length + 1) * sentences[i].length > BATCH.tokens;
    if (batch.length && (batch.length === BATCH.sentences || isFull)) {
      result.push(batch);
      batch = [];
    }
    batch.push(i);
  }
  return batch.length ? [...result, batch] : result;
}
