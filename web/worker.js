// The model runs here, beside the page, which stays responsive: { id, name, values } comes in,
// { id, answer } or { id, error } goes out, and { progress } while files are downloaded.

import { Model, progress, Refused } from "./model.js";
import { usesOf } from "./uses.js";

const MAX_TOKENS = 5000; // of a request: more would fill the memory of a phone
let models = null;

progress.report = () => postMessage({ progress: { done: progress.done, total: progress.total } });

function checked(sentences) {
  const tokens = sentences.reduce((sum, { length }) => sum + length, 0);
  if (tokens > MAX_TOKENS) {
    throw new Refused(`${tokens} tokens are too many: at most ${MAX_TOKENS} are read at once`);
  }
  return sentences;
}

const answers = {
  async start(about) {
    const { limits } = about;
    const make = (card) => [card.id, new Model({ ...card, limits }, about.runtime)];
    models = new Map(about.data.map(make));
  },

  async layers(model, inputs) {
    const sentences = checked(inputs.map((input) => model.tokens(input)));
    const layers = await model.layers(sentences);
    const { dimensions, num_layers } = model.about;
    const half = dimensions / 2;
    return {
      num_layers,
      dimensions,
      forward: [0, half],
      backward: [half, dimensions],
      sentences: sentences.map((tokens, i) => ({
        tokens,
        layers: layers[i].map((layer) => layer.map((row) => Array.from(row))),
      })),
    };
  },

  async uses(model, question) {
    checked(question.sentences.map((sentence) => model.tokens(sentence)));
    return usesOf(model, question);
  },

  async surprisal(model, inputs) {
    const sentences = [];
    for (const tokens of checked(inputs.map((input) => model.tokens(input)))) {
      sentences.push(await model.surprisal(tokens));
    }
    return { sentences };
  },

  async fill(model, tokens, position, k) {
    checked([tokens]);
    return { tokens, position, words: await model.fill(tokens, position, k) };
  },
};

// One after the other: a session takes one call at a time.
let last = Promise.resolve();

onmessage = ({ data: { id, name, values } }) => {
  last = last.then(async () => {
    try {
      const [first, ...rest] = values;
      const answer = await answers[name](name === "start" ? first : models.get(first), ...rest);
      postMessage({ id, answer });
    } catch (error) {
      postMessage({ id, error: { kind: error.kind, message: error.message } });
    }
  });
};
