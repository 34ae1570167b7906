// Text to tokens to character ids, as elmokit does it in Python.

import { TOKEN } from "./elmokit.js";

const pattern = new RegExp(TOKEN, "gu");
const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;
const LONE = /\p{Surrogate}/gu; // half of a character, which has no bytes

const parts = (text) => text.split(SPACE).filter(Boolean);

/** Words of Chinese text as the browser finds them, which may be others than jieba's. */
function segment(text) {
  if (!Intl.Segmenter) return parts(text);
  const segmenter = new Intl.Segmenter("zh", { granularity: "word" });
  return Array.from(segmenter.segment(text), ({ segment: word }) => word).filter(
    (word) => parts(word).length > 0,
  );
}

/** Tokens of a text; the name is that of a tokenizer of elmokit. */
export function tokenize(text, name) {
  if (name.startsWith("chinese")) return segment(text);
  if (name === "whitespace") return parts(text);
  return Array.from(text.matchAll(pattern), (match) => match[1]);
}

const encoder = new TextEncoder();

/** Write the character ids of a word into a row. */
function writeWord(word, row, ids) {
  row.fill(BigInt(ids.padding));
  row[0] = BigInt(ids.begin_word);
  let codes;
  if (word === "<S>" || word === "</S>") {
    codes = [word === "<S>" ? ids.begin_sentence : ids.end_sentence];
  } else {
    const bytes = encoder.encode(word.replace(LONE, "")).subarray(0, ids.max_characters - 2);
    codes = Array.from(bytes, (byte) => byte + ids.first_byte);
  }
  codes.forEach((code, i) => (row[i + 1] = BigInt(code)));
  row[codes.length + 1] = BigInt(ids.end_word);
}

/** Character ids of sentences, padded with 0: (sentences, words, max_characters). */
export function characterIds(sentences, ids) {
  const words = Math.max(0, ...sentences.map((sentence) => sentence.length));
  const columns = ids.max_characters;
  const result = new BigInt64Array(sentences.length * words * columns);
  sentences.forEach((sentence, i) =>
    sentence.forEach((word, j) => {
      const start = (i * words + j) * columns;
      writeWord(word, result.subarray(start, start + columns), ids);
    }),
  );
  return { data: result, dims: [sentences.length, words, columns] };
}
