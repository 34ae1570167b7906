// A word in many sentences: found, then mapped in every layer. As `elmokit serve` answers.

import { cluster, purity, silhouette } from "./clusters.js";
import { ENDINGS, MIN_STEM } from "./elmokit.js";
import { mixedMap, nearest, products } from "./mix.js";
import { Refused } from "./model.js";

const MIN_USES = 3; // two points are always on a line

/** Whether a token is a form of an English word: banks, stopped, cities. */
function isForm(token, lemma) {
  const word = token.toLowerCase();
  if (word === lemma) return true;
  return Object.entries(ENDINGS).some(([ending, replacements]) => {
    if (!word.endsWith(ending)) return false;
    const stem = word.slice(0, word.length - ending.length);
    if (stem.length < MIN_STEM) return false;
    return replacements.some(
      (replacement) =>
        stem + replacement === lemma ||
        (stem.at(-1) === stem.at(-2) && stem.slice(0, -1) === lemma),
    );
  });
}

/** Where a word of one or more tokens stands in a sentence: [{ start, end }]. */
function find(tokens, word, inflected) {
  const lemma = word.map((token) => token.toLowerCase());
  const isLast = (token) =>
    inflected ? isForm(token, lemma.at(-1)) : token.toLowerCase() === lemma.at(-1);
  return tokens.flatMap((_, start) => {
    const end = start + lemma.length;
    if (end > tokens.length || !isLast(tokens[end - 1])) return [];
    const isEqual = lemma.slice(0, -1).every((one, i) => tokens[start + i].toLowerCase() === one);
    return isEqual ? [{ start, end }] : [];
  });
}

function meanOf(rows) {
  const total = new Float64Array(rows[0].length);
  for (const row of rows) for (let i = 0; i < row.length; i++) total[i] += row[i];
  return total.map((value) => value / rows.length);
}

/** Vectors of the uses without the mean of all tokens, and their average: (L + 2, uses, dim). */
function vectorsOf(uses, sentences) {
  const layers = sentences[0].map((_, layer) => {
    const center = meanOf(sentences.flatMap((sentence) => sentence[layer]));
    return uses.map(({ sentence, start, end }) =>
      Array.from(
        meanOf(sentences[sentence][layer].slice(start, end)),
        (value, i) => value - center[i],
      ),
    );
  });
  const average = uses.map((_, use) => Array.from(meanOf(layers.map((layer) => layer[use]))));
  return [...layers, average];
}

/** Mirror the components of points (uses, 2) if that brings them nearer to others. */
function mirrored(points, before) {
  const signs = [0, 1].map((axis) =>
    points.reduce((total, point, i) => total + point[axis] * before[i][axis], 0) < 0 ? -1 : 1,
  );
  return points.map((point) => point.map((value, axis) => value * signs[axis]));
}

function mapsOf(vectors, labels, neighbours) {
  const unaligned = vectors[0].map(() => [0, 0]);
  let before = unaligned;
  const hasLabels = new Set(labels).size > 1;
  return vectors.map((layer, i) => {
    const map = mixedMap(products([layer]), [1], unaligned);
    before = mirrored(map.points, before);
    return {
      name: i < vectors.length - 1 ? `layer ${i}` : "average",
      points: before,
      variance: map.variance,
      one_point: map.onePoint,
      neighbours: layer.map((_, use) => nearest(map.cosines, use, neighbours)),
      purity: hasLabels ? purity(map.cosines, labels) : null,
      silhouette: hasLabels ? silhouette(map.cosines, labels) : null,
      vectors: layer,
      cosines: map.cosines,
    };
  });
}

/** Each form of the word with its point in layer 0. */
function staticPoints(uses, points) {
  const forms = new Map();
  uses.forEach(({ word }, i) => {
    if (!forms.has(word)) forms.set(word, { word, point: points[i], uses: 0 });
    forms.get(word).uses += 1;
  });
  return [...forms.values()];
}

/** The answer of `elmokit serve` to /v1/uses. */
export async function usesOf(model, { word, sentences, labels, inflected, neighbours = 5 }) {
  const lemma = model.tokens(word);
  if (lemma.length === 0) throw new Refused("the word is empty");
  const tokens = sentences.map((sentence) => model.tokens(sentence));
  const found = tokens.map((sentence) => find(sentence, lemma, inflected));
  const uses = found.flatMap((spans, sentence) =>
    spans.map(({ start, end }) => ({
      sentence,
      tokens: tokens[sentence],
      start,
      end,
      word: tokens[sentence].slice(start, end).join(" "),
      label: labels ? labels[sentence] : null,
    })),
  );
  if (uses.length === 0) throw new Refused("none of the sentences has the word");
  if (uses.length < MIN_USES) {
    throw new Refused(
      `a map needs at least ${MIN_USES} uses of the word, and these sentences have ${uses.length}`,
    );
  }
  const { max_uses: most } = model.about.limits;
  if (uses.length > most) {
    throw new Refused(`${uses.length} uses are too many: at most ${most} are mapped`);
  }
  const vectors = vectorsOf(uses, await model.layers(tokens));
  const maps = mapsOf(
    vectors,
    uses.map(({ label }) => label),
    neighbours,
  );
  const clusters = cluster(vectors.at(-1), maps.at(-1).cosines);
  for (const map of maps) delete map.cosines;
  return {
    word: lemma.join(" ").toLowerCase(),
    uses: uses.map((use, i) => ({ ...use, cluster: clusters[i] })),
    missing: found.flatMap((spans, row) => (spans.length ? [] : [row])),
    layers: maps,
    mix: null,
    static: staticPoints(uses, maps[0].points),
    clusters: new Set(clusters).size,
  };
}
