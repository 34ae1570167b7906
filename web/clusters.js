// Groups of vectors by cosine: spherical k-means, silhouette, purity. As in elmokit's geometry.

const TIE = 1e-4; // cosines that are closer count as equal
const RESTARTS = 10;
const MAX_ROUNDS = 100;
const MAX_CLUSTERS = 8;
const MIN_GAIN = 0.05; // more clusters must raise the silhouette by this much
const SEED = 1;

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;

function dot(one, other) {
  let total = 0;
  for (let i = 0; i < one.length; i++) total += one[i] * other[i];
  return total;
}

function unit(vector) {
  const length = Math.sqrt(dot(vector, vector)) || 1;
  return Float64Array.from(vector, (value) => value / length);
}

/** Random numbers from 0 to 1, the same every time (a linear congruential generator). */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Vectors that lie apart, each drawn by its distance to those before (k-means++). */
function firstCenters(vectors, count, random) {
  const centers = [vectors[Math.floor(random() * vectors.length)]];
  while (centers.length < count) {
    const distances = vectors.map((vector) =>
      Math.max(0, Math.min(...centers.map((center) => 1 - dot(vector, center)))),
    );
    let rest = random() * sum(distances);
    const drawn = distances.findIndex((distance) => (rest -= distance) < 0);
    centers.push(vectors[drawn < 0 ? Math.floor(random() * vectors.length) : drawn]);
  }
  return centers;
}

/** Move to each empty cluster the vector that is farthest from its own center. */
function fillEmpty(labels, cosines, count) {
  for (let cluster = 0; cluster < count; cluster++) {
    if (labels.includes(cluster)) continue;
    const sizes = Array.from({ length: count }, (_, k) => labels.filter((x) => x === k).length);
    const own = labels.map((label, i) => (sizes[label] > 1 ? cosines[i][label] : Infinity));
    labels[own.indexOf(Math.min(...own))] = cluster;
  }
}

function runKmeans(vectors, count, random) {
  let centers = firstCenters(vectors, count, random);
  let labels = [];
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const cosines = vectors.map((vector) => centers.map((center) => dot(vector, center)));
    const next = cosines.map((row) => row.indexOf(Math.max(...row)));
    fillEmpty(next, cosines, count);
    if (next.every((label, i) => label === labels[i])) break;
    labels = next;
    centers = centers.map((_, cluster) => {
      const total = new Float64Array(vectors[0].length);
      vectors.forEach((vector, i) => {
        if (labels[i] === cluster) vector.forEach((value, j) => (total[j] += value));
      });
      return unit(total);
    });
  }
  return { labels, score: sum(vectors.map((vector, i) => dot(vector, centers[labels[i]]))) };
}

function kmeans(vectors, count) {
  const random = generator(SEED);
  const runs = Array.from({ length: RESTARTS }, () => runKmeans(vectors, count, random));
  return runs.reduce((best, run) => (run.score > best.score ? run : best)).labels;
}

/** Mean silhouette of labels by cosine distance, from cosines (uses, uses). */
export function silhouette(cosines, labels) {
  const names = [...new Set(labels)];
  if (names.length < 2) return 0;
  const distance = (i, j) => (i === j || cosines[i][j] > 1 - TIE ? 0 : 1 - cosines[i][j]);
  const members = new Map(names.map((name) => [name, []]));
  labels.forEach((label, i) => members.get(label).push(i));
  return mean(
    labels.map((label, i) => {
      const own = members.get(label);
      if (own.length === 1) return 0;
      const total = (group) => sum(group.map((j) => distance(i, j)));
      const inside = total(own) / (own.length - 1);
      const others = names.filter((name) => name !== label).map((name) => members.get(name));
      const outside = Math.min(...others.map((group) => total(group) / group.length));
      return (outside - inside) / Math.max(inside, outside, 1e-12);
    }),
  );
}

/** How often the nearest other use has the same label, from cosines (uses, uses). */
export function purity(cosines, labels) {
  return mean(
    labels.map((label, i) => {
      const others = labels.map((_, j) => j).filter((j) => j !== i);
      const most = Math.max(...others.map((j) => cosines[i][j]));
      const nearest = others.filter((j) => cosines[i][j] >= most - TIE);
      return nearest.filter((j) => labels[j] === label).length / nearest.length;
    }),
  );
}

/** The cluster of each vector: the smallest number of clusters that is nearly the best. */
export function cluster(vectors, cosines) {
  const directions = vectors.map(unit);
  const most = Math.min(MAX_CLUSTERS, vectors.length - 1);
  const results = [];
  for (let count = 2; count <= most; count++) {
    const labels = kmeans(directions, count);
    results.push({ labels, score: silhouette(cosines, labels) });
  }
  const enough = Math.max(...results.map(({ score }) => score)) - MIN_GAIN;
  return results.find(({ score }) => score >= enough).labels;
}
