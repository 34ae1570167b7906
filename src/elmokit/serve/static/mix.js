// The scalar mix and its map, computed here so that the points follow the sliders.
//
// All that a map needs are the dot products of the mixed vectors, and those are sums of the dot
// products of layers: (Σ s_a v_a) · (Σ s_b w_b) = ΣΣ s_a s_b (v_a · w_b). The latter are computed
// once; then a move of a slider costs the same for 256 and for 1,024 columns.

const BLOCK = 8; // vectors that are iterated together: the first two of them converge quickly
const ITERATIONS = 40;
const TIE = 1e-5;

function dot(one, other) {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += one[i] * other[i];
  return sum;
}

/** Dot products of all uses for each pair of layers, from vectors (layers, uses, dimensions). */
export function products(layers) {
  return layers.map((own) =>
    layers.map((other) => own.map((row) => Float64Array.from(other, (column) => dot(row, column)))),
  );
}

/** Shares that add up to 1, from amounts that are not negative. */
export function shares(amounts) {
  const sum = amounts.reduce((total, amount) => total + amount, 0);
  return amounts.map((amount) => (sum > 0 ? amount / sum : 1 / amounts.length));
}

/** Cosines of the mixed vectors: (uses, uses). */
export function mixedCosines(table, weights) {
  const count = table[0][0].length;
  const sums = Array.from({ length: count }, () => new Float64Array(count));
  weights.forEach((one, a) =>
    weights.forEach((other, b) => {
      if (one * other === 0) return;
      for (let i = 0; i < count; i++) {
        const row = table[a][b][i];
        for (let j = 0; j < count; j++) sums[i][j] += one * other * row[j];
      }
    }),
  );
  const lengths = sums.map((row, i) => Math.sqrt(Math.max(row[i], 0)) || 1);
  return sums.map((row, i) => row.map((value, j) => value / (lengths[i] * lengths[j])));
}

function centered(matrix) {
  const count = matrix.length;
  const means = matrix.map((row) => row.reduce((total, value) => total + value, 0) / count);
  const mean = means.reduce((total, value) => total + value, 0) / count;
  return matrix.map((row, i) => row.map((value, j) => value - means[i] - means[j] + mean));
}

function orthonormal(vectors) {
  const kept = [];
  for (const vector of vectors) {
    for (let pass = 0; pass < 2; pass++) {
      for (const other of kept) {
        const share = dot(vector, other);
        for (let i = 0; i < vector.length; i++) vector[i] -= share * other[i];
      }
    }
    const length = Math.sqrt(dot(vector, vector));
    if (length > 1e-12) kept.push(vector.map((value) => value / length));
  }
  return kept;
}

/** Eigenvectors of a small symmetric matrix, as rows with their values, by Jacobi's rotations. */
function eigen(matrix) {
  const size = matrix.length;
  const values = matrix.map((row) => Float64Array.from(row));
  const vectors = matrix.map((_, i) => Float64Array.from(matrix, (_, j) => (i === j ? 1 : 0)));
  for (let sweep = 0; sweep < 20; sweep++) {
    for (let p = 0; p < size; p++) {
      for (let q = p + 1; q < size; q++) {
        if (Math.abs(values[p][q]) < 1e-15) continue;
        const angle = Math.atan2(2 * values[p][q], values[q][q] - values[p][p]) / 2;
        const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
        const rotate = (one, other) => {
          for (let i = 0; i < size; i++) {
            [one[i], other[i]] = [cos * one[i] - sin * other[i], sin * one[i] + cos * other[i]];
          }
        };
        for (const row of values) {
          [row[p], row[q]] = [cos * row[p] - sin * row[q], sin * row[p] + cos * row[q]];
        }
        rotate(values[p], values[q]);
        rotate(vectors[p], vectors[q]);
      }
    }
  }
  return vectors.map((vector, i) => ({ value: values[i][i], vector }));
}

/** The two largest eigenvalues of a symmetric matrix and their vectors, by subspace iteration. */
export function topTwo(matrix) {
  const count = matrix.length;
  const image = (vector) => Float64Array.from(matrix, (row) => dot(row, vector));
  // Any start will do that is not orthogonal to them; this one is the same every time.
  let basis = orthonormal(
    Array.from({ length: Math.min(BLOCK, count) }, (_, k) =>
      Float64Array.from({ length: count }, (_, i) => Math.sin(1 + 3 * k + (k + 1) * 1.7 * i)),
    ),
  );
  for (let step = 0; step < ITERATIONS; step++) {
    const moved = orthonormal(basis.map(image));
    if (moved.length === 0) break;
    basis = moved;
  }
  const images = basis.map(image);
  const pairs = eigen(basis.map((one) => images.map((other) => dot(one, other)))).map((pair) => ({
    value: Math.max(pair.value, 0),
    vector: Float64Array.from({ length: count }, (_, i) =>
      basis.reduce((sum, vector, k) => sum + pair.vector[k] * vector[i], 0),
    ),
  }));
  pairs.sort((one, other) => other.value - one.value);
  while (pairs.length < 2) pairs.push({ value: 0, vector: new Float64Array(count) });
  return pairs.slice(0, 2);
}

/** Turn or mirror points (uses, 2) so that they come as near as possible to a reference. */
export function aligned(points, reference) {
  let [a, b, c, d] = [0, 0, 0, 0];
  points.forEach(([x, y], i) => {
    const [u, v] = reference[i];
    a += x * u;
    b += x * v;
    c += y * u;
    d += y * v;
  });
  const turn = Math.hypot(a + d, b - c);
  const mirror = Math.hypot(a - d, b + c);
  if (turn + mirror === 0) return points;
  if (turn >= mirror) {
    const [cos, sin] = [(a + d) / turn, (b - c) / turn];
    return points.map(([x, y]) => [x * cos - y * sin, x * sin + y * cos]);
  }
  const [cos, sin] = [(a - d) / mirror, (b + c) / mirror];
  return points.map(([x, y]) => [x * cos + y * sin, x * sin - y * cos]);
}

/** The map of a mix: points on two principal components of directions, cosines, and shares. */
export function mixedMap(table, weights, reference) {
  const cosines = mixedCosines(table, weights);
  const matrix = centered(cosines);
  const total = matrix.reduce((sum, row, i) => sum + row[i], 0);
  if (total < TIE) {
    return { points: cosines.map(() => [0, 0]), cosines, variance: [0, 0], onePoint: true };
  }
  const [first, second] = topTwo(matrix);
  const points = cosines.map((_, i) =>
    [first, second].map((pair) => pair.vector[i] * Math.sqrt(pair.value)),
  );
  return {
    points: aligned(points, reference),
    cosines,
    variance: [first.value / total, second.value / total],
    onePoint: false,
  };
}

/** The nearest other uses of use `i`, from cosines (uses, uses). */
export function nearest(cosines, i, count) {
  return Array.from(cosines[i], (cosine, use) => ({ use, cosine }))
    .filter(({ use }) => use !== i)
    .sort((one, other) => other.cosine - one.cosine)
    .slice(0, count);
}

/** Cosine of two vectors. */
export function cosine(one, other) {
  const size = Math.sqrt(dot(one, one) * dot(other, other));
  return size > 0 ? dot(one, other) / size : 0;
}

/** γ Σ s_j h_j of the layers of one token: (dimensions). */
export function mixed(layers, weights, gamma) {
  return layers[0].map((_, i) =>
    layers.reduce((sum, layer, j) => sum + gamma * weights[j] * layer[i], 0),
  );
}
