// The first part of the anatomy: from the characters of a token to its vector x.

import { s } from "../dom.js";
import { t } from "../i18n.js";
import { arrow, GUTTER, pointed } from "./strokes.js";

const CELL = 22; // a character
const CONV = 21; // a row of convolutions

/** How a model makes token vectors: which parts it has, in the order of the flow. */
export function encoderParts(sizes) {
  if (isTable(sizes)) return ["words"];
  const read =
    sizes.character_encoder === "lstm"
      ? ["characterLstm"]
      : ["convolutions", "maximum", ...(sizes.highway_layers ? ["highway"] : [])];
  const beside = sizes.word_dim > 0 ? ["wordBeside"] : [];
  return ["characters", ...read, ...beside, ...(sizes.project_tokens ? ["projection"] : [])];
}

const isTable = ({ token_encoder: encoder, character_dim: size }) =>
  encoder === "words" || size === 0;

/** What is read of the chosen token: [text, kind]. */
function unitsOf(view) {
  const token = view.tokens[view.token];
  const between = (units) => [["⟨", "mark"], ...units, ["⟩", "mark"]];
  if (view.sizes.token_encoder === "unicode") {
    return between(Array.from(token, (one) => [one, "byte"]));
  }
  const bytes = Array.from(token).flatMap((one) => {
    const codes = [...new TextEncoder().encode(one)];
    if (codes.length === 1) return [[one, "byte"]];
    return codes.map((code) => [code.toString(16).toUpperCase(), "hex"]);
  });
  const kept = bytes.slice(0, view.sizes.max_characters - 2);
  return [...between(kept), ["·", "pad"], ["·", "pad"]];
}

/** Draw the way of the chosen token to x; return also where x leaves it. */
export function drawEncoder(view) {
  const { sizes, width } = view;
  if (isTable(sizes)) return drawTable(view);
  const room = Math.max(6, Math.floor(((width - GUTTER) * 0.43) / CELL) - 1);
  const all = unitsOf(view);
  const units = all.slice(0, room);
  const isCut = all.length > room;
  const end = GUTTER + units.length * CELL;
  const top = 90;
  const filters = view.parts.includes("convolutions") ? sizes.filters : [];
  const bottom = top + Math.max(filters.length, 4) * CONV;
  // The bars of the maximum and of the highway, and x, at shares of what is left of the width.
  const at = (share) => Math.round(end + CELL + share * (width - end - CELL));
  const first = at(0.1);
  const second = view.parts.includes("highway") ? at(0.6) : first;
  const last = view.parts.includes("projection") ? at(0.86) : second + 60;
  const reading = filters.length
    ? convolutions(view, { units, filters, isCut, end, first, top, bottom })
    : characterLstm(view, { end, first, top, bottom });
  const middle = (top + bottom) / 2;
  const element = s(
    "g",
    { "aria-hidden": "true" },
    characters(view, units, isCut, end),
    reading,
    second !== first &&
      view.part(
        "highway",
        highway(first + 16, second, top, bottom),
        view.caption(
          "highway",
          first + 62,
          top - 18,
          t("label.highway") + (sizes.highway_layers > 1 ? ` × ${sizes.highway_layers}` : ""),
        ),
      ),
    view.parts.includes("wordBeside") && wordBeside(view, second, top),
    tokenVector(view, second + (second === first ? 16 : 14), last, top, bottom),
  );
  const size = (bottom - top) * 0.5;
  return { element, x: last + 8, y: middle + size / 2 + 2, bottom: bottom + 18 };
}

function characters(view, units, isCut, end) {
  const top = 6;
  const boxes = units.map(([text, kind], i) =>
    s(
      "g",
      { transform: `translate(${GUTTER + i * CELL} ${top})` },
      s("rect", { class: `unit ${kind}`, width: CELL - 3, height: 24, rx: 3 }),
      s("text", { class: `unit-text ${kind}`, x: (CELL - 3) / 2, y: 16.5 }, text),
    ),
  );
  const vectors = units.map(([, kind], i) =>
    Array.from({ length: 4 }, (_, k) =>
      s("rect", {
        class: `vector-cell ${kind === "pad" ? "pad" : ""}`,
        x: GUTTER + i * CELL + 4,
        y: top + 32 + k * 9,
        width: CELL - 11,
        height: 8,
      }),
    ),
  );
  const dots = (y) => isCut && s("text", { class: "caption faint", x: end + 2, y }, "…");
  return view.part(
    "characters",
    view.caption("characters", 0, top + 16, t("label.characters")),
    boxes,
    dots(top + 16),
    s("text", { class: "caption faint", x: 24, y: top + 54 }, `d = ${view.sizes.character_dim}`),
    vectors,
    dots(top + 54),
  );
}

function convolutions(view, { units, filters, isCut, end, first, top, bottom }) {
  const rows = filters.map((filter, i) => convolution(units.length, filter, i, top + i * CONV));
  const lines = filters.map((_, i) => {
    const y = top + i * CONV + CONV / 2 - 1;
    return pointed(end + (isCut ? 18 : 8), y, first - 4, y, "flow thin");
  });
  const total = filters.reduce((sum, [, count]) => sum + count, 0);
  return [
    view.part("convolutions", view.badge("convolutions", 9, top + 9), rows),
    view.part(
      "maximum",
      lines,
      stack(first, top, filters),
      s("text", { class: "caption faint middle", x: first + 8, y: bottom + 16 }, String(total)),
      view.caption("maximum", first - 16, top - 18, t("label.maximum")),
    ),
  ];
}

function characterLstm(view, { end, first, top, bottom }) {
  const middle = (top + bottom) / 2;
  return view.part(
    "characterLstm",
    view.badge("characterLstm", 9, middle),
    s("rect", {
      class: "operation",
      x: GUTTER,
      y: middle - 20,
      width: end - GUTTER,
      height: 40,
      rx: 8,
    }),
    s("text", { class: "operation-text", x: (GUTTER + end) / 2, y: middle + 5 }, "→ LSTM ←"),
    pointed(end + 4, middle, first - 4, middle),
    s("rect", {
      class: "segment plain",
      x: first,
      y: top + 1,
      width: 16,
      height: bottom - top - 3,
      rx: 2,
    }),
  );
}

/** A row: one window of the filters of a width, and where else it stands. */
function convolution(count, [size, filters], i, y) {
  const positions = Math.max(1, count - size + 1);
  const shown = Math.min(size, count);
  const start = Math.min(1, Math.max(0, count - shown));
  const label = s("text", { class: "caption small", x: 24, y: y + 13 }, `w = ${size} · ${filters}`);
  // A dot for each position of the window; those that the drawn window covers are left out.
  const dots = Array.from({ length: positions }, (_, k) => k)
    .filter((k) => k === start || Math.abs(k - start) > shown / 2)
    .map((k) =>
      s("circle", {
        class: "position",
        cx: GUTTER + (k + (shown - 1) / 2) * CELL + CELL / 2 - 1.5,
        cy: y + CONV / 2 - 1,
        r: 2.2,
      }),
    );
  const window = s("rect", {
    class: `window k${i % 8}`,
    x: GUTTER + start * CELL - 0.5,
    y: y + 2,
    width: shown * CELL - 2,
    height: CONV - 6,
    rx: 4,
  });
  return [label, window, dots];
}

/** What remains of each width: a segment for its filters. */
function stack(x, y, filters) {
  return filters.map((_, i) =>
    s("rect", {
      class: `segment k${i % 8}`,
      x,
      y: y + i * CONV + 1,
      width: 16,
      height: CONV - 3,
      rx: 2,
    }),
  );
}

/** Two ways from x1 to the bar at x2: through a layer, and around it. */
function highway(x1, x2, top, bottom) {
  const middle = (top + bottom) / 2;
  const [upper, lower] = [middle - 24, middle + 24];
  const width = x2 - x1;
  const gate = x1 + width * 0.62;
  const join = x1 + width * 0.82;
  const node = (x, y, sign) => [
    s("circle", { class: "node", cx: x, cy: y, r: 9 }),
    s("text", { class: "node-text", x, y: y + 4.5 }, sign),
  ];
  return [
    arrow(`M${x1 + 2} ${middle}H${x1 + width * 0.1}M${x1 + width * 0.1} ${lower}V${upper}`),
    pointed(x1 + width * 0.1, upper, x1 + width * 0.17, upper),
    s("rect", {
      class: "operation",
      x: x1 + width * 0.17,
      y: upper - 13,
      width: width * 0.33,
      height: 26,
      rx: 5,
    }),
    s(
      "text",
      { class: "operation-text", x: x1 + width * 0.335, y: upper + 4.5 },
      width > 230 ? "relu(Bu+b)" : "relu",
    ),
    pointed(x1 + width * 0.5, upper, gate - 10, upper),
    node(gate, upper, "g"),
    pointed(x1 + width * 0.1, lower, gate - 10, lower),
    s("rect", { class: "node", x: gate - 17, y: lower - 10, width: 34, height: 20, rx: 10 }),
    s("text", { class: "node-text small", x: gate, y: lower + 4 }, "1−g"),
    arrow(
      `M${gate + 10} ${upper}H${join}V${middle - 10}M${gate + 18} ${lower}H${join}V${middle + 10}`,
    ),
    node(join, middle, "+"),
    pointed(join + 10, middle, x2 - 4, middle),
    s("rect", {
      class: "segment plain",
      x: x2,
      y: top + 1,
      width: 14,
      height: bottom - top - 3,
      rx: 2,
    }),
  ];
}

/** The vector of the word itself, on top of what was read from its characters. */
function wordBeside(view, x, top) {
  return view.part(
    "wordBeside",
    s("rect", { class: "segment k1", x, y: top - 26, width: 16, height: 24, rx: 2 }),
    s("text", { class: "caption faint end", x: x - 6, y: top - 9 }, String(view.sizes.word_dim)),
    view.badge("wordBeside", x + 8, top - 40),
  );
}

/** The projection, if there is one, and the token vector. */
function tokenVector(view, x1, x2, top, bottom) {
  const middle = (top + bottom) / 2;
  const size = (bottom - top) * 0.5;
  const y = middle - size / 2;
  const isProjected = view.parts.includes("projection");
  return view.part(
    isProjected ? "projection" : "vectors",
    isProjected
      ? [
          s("path", {
            class: "funnel",
            d: `M${x1 + 3} ${top + 1}L${x2 - 4} ${y}V${y + size}L${x1 + 3} ${bottom - 2}Z`,
          }),
          s("text", { class: "operation-text", x: (x1 + x2) / 2, y: middle + 4.5 }, "P"),
          view.caption("projection", x1 + 14, top - 18, t("label.projection")),
        ]
      : pointed(x1 + 3, middle, x2 - 4, middle),
    s("rect", { class: "token-vector", x: x2, y, width: 16, height: size, rx: 3 }),
    symbolText(x2 + 23, middle + 5),
    s(
      "text",
      { class: "caption faint middle", x: x2 + 8, y: y - 8 },
      String(view.sizes.projection_dim),
    ),
  );
}

function symbolText(x, y) {
  return s("text", { class: "symbol-text", x, y }, "x", s("tspan", { class: "index", dy: 4 }, "k"));
}

/** A model with a table of word vectors has a row for each word. */
function drawTable(view) {
  const x = GUTTER;
  const element = s(
    "g",
    { "aria-hidden": "true" },
    view.part(
      "words",
      view.caption("words", 0, 50, t("label.words")),
      Array.from({ length: 6 }, (_, i) =>
        s("rect", {
          class: `vector-cell ${i === 3 ? "chosen" : ""}`,
          x,
          y: 24 + i * 13,
          width: 150,
          height: 11,
          rx: 2,
        }),
      ),
      s("text", { class: "caption", x: x + 162, y: 24 + 3 * 13 + 10 }, view.tokens[view.token]),
      pointed(x + 170 + 70, 68, x + 300, 68),
      s("rect", { class: "token-vector", x: x + 306, y: 40, width: 16, height: 56, rx: 3 }),
      s(
        "text",
        { class: "symbol-text", x: x + 330, y: 72 },
        "x",
        s("tspan", { class: "index", dy: 4 }, "k"),
      ),
    ),
  );
  return { element, x: x + 314, y: 98, bottom: 118 };
}
