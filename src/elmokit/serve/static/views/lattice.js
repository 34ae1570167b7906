// The middle of the anatomy: the forward and the backward language model, word by word.

import { fitted, s } from "../dom.js";
import { t } from "../i18n.js";
import { arrow, pointed } from "./strokes.js";

const ROW = 66; // a layer of LSTMs
const MAX_DRAWN_LAYERS = 6;

export function drawLattice(view, encoder) {
  const top = encoder.bottom + 26;
  const bus = top + 18;
  const words = ["<S>", ...view.tokens, "</S>"];
  const chosen = view.token + 1;
  const most = Math.max(3, Math.min(words.length, 2 * Math.floor(view.half / 96) + 1));
  const count = Math.min(most, words.length);
  const start = Math.max(0, Math.min(chosen - Math.floor(count / 2), words.length - count));
  const shown = {
    words: words.slice(start, start + count),
    first: start,
    chosen: chosen - start,
    isCutLeft: start > 0,
    isCutRight: start + count < words.length,
  };
  const layers = Math.min(view.numLayers, MAX_DRAWN_LAYERS);
  const forward = direction(view, "forward", view.left, bus, shown, layers);
  const backward = direction(view, "backward", view.right, bus, shown, layers);
  const low = bus + 74 + layers * ROW;
  const labels = Array.from({ length: layers }, (_, j) =>
    s("text", { class: "caption", x: 24, y: bus + 74 + j * ROW + 26 }, t("layer", { n: j + 1 })),
  );
  const pipe = s(
    "g",
    { class: "flow strong" },
    s("path", {
      class: "shaft",
      d: `M${encoder.x} ${encoder.y}V${bus}M${Math.max(encoder.x, backward.x)} ${bus}H${Math.min(forward.x, encoder.x)}`,
    }),
  );
  const element = s(
    "g",
    { "aria-hidden": "true" },
    view.part(
      "projection forward backward words",
      pipe,
      [forward.x, backward.x].map((x) => pointed(x, bus - 0.75, x, bus + 12, "flow strong")),
    ),
    s("text", { class: "caption", x: 24, y: bus + 49 }, "x"),
    labels,
    view.part("forward skip", forward.element),
    view.part("backward skip", backward.element),
    view.part("forward", view.caption("forward", view.left, top, t("label.forward"), "strong")),
    view.part("backward", view.caption("backward", view.right, top, t("label.backward"), "strong")),
    view.parts.includes("skip") &&
      view.part(
        "skip",
        view.badge("skip", 9, bus + 74 + ROW + 44),
        s("text", { class: "caption small", x: 24, y: bus + 74 + ROW + 48 }, t("label.skip")),
      ),
  );
  return { element, bottom: low, columns: [forward.x, backward.x] };
}

function direction(view, name, x0, bus, shown, layers) {
  const { words, chosen } = shown;
  const pitch = view.half / words.length;
  const center = (i) => x0 + (i + 0.5) * pitch;
  const box = Math.min(58, pitch - 14);
  const isForward = name === "forward";
  const sees = (i) => (isForward ? i <= chosen : i >= chosen);
  const wordY = bus + 30;
  const top = bus + 74;
  const column = s("rect", {
    class: "chosen-column",
    x: center(chosen) - pitch / 2 + 2,
    y: bus + 14,
    width: pitch - 4,
    height: 60 + layers * ROW,
    rx: 8,
  });
  const parts = words.map((word, i) => {
    const x = center(i);
    const index = shown.first + i - 1;
    const kind = `${i === chosen ? "chosen" : ""} ${sees(i) ? "seen" : "unseen"} ${name}`;
    const isToken = index >= 0 && index < view.tokens.length;
    const cells = Array.from({ length: layers }, (_, j) =>
      lstmCell(view, x, top + j * ROW, box, kind, j),
    );
    return s(
      "g",
      isToken ? { class: "column", click: () => view.select(index) } : null,
      s(
        "text",
        { class: `lattice-word ${i === chosen ? "chosen" : ""}`, x, y: wordY },
        fitted(word, pitch - 4, 12),
      ),
      s("rect", {
        class: `token-vector ${kind}`,
        x: x - box / 2,
        y: wordY + 8,
        width: box,
        height: 13,
        rx: 3,
      }),
      cells,
    );
  });
  const links = [];
  for (let j = 0; j < layers; j++) {
    const y = top + j * ROW + 22;
    for (let i = 0; i + 1 < words.length; i++) {
      const [a, b] = [center(i) + box / 2 + 1, center(i + 1) - box / 2 - 1];
      const kind = `flow thin ${name} ${sees(i) && sees(i + 1) ? "seen" : "unseen"}`;
      links.push(isForward ? pointed(a, y, b, y, kind) : pointed(b, y, a, y, kind));
    }
    if (shown.isCutLeft)
      links.push(s("text", { class: "caption faint middle", x: x0 - 4, y: y + 4 }, "…"));
    if (shown.isCutRight)
      links.push(
        s("text", { class: "caption faint middle", x: x0 + view.half + 6, y: y + 4 }, "…"),
      );
  }
  return { element: s("g", null, column, links, parts), x: center(chosen) };
}

function lstmCell(view, x, y, box, kind, j) {
  const hasSkip = j > 0 && view.sizes.skip_connections;
  const side = x + box / 2;
  const sum = y + 48;
  return [
    pointed(x, y - (j === 0 ? 22 : 10), x, y + 8, `flow thin ${kind}`),
    s("rect", { class: `lstm ${kind}`, x: x - box / 2, y: y + 9, width: box, height: 26, rx: 6 }),
    s("text", { class: `lstm-text ${kind}`, x, y: y + 26 }, box > 31 ? "LSTM" : ""),
    hasSkip && [
      arrow(`M${x} ${y - 4}H${side + 5}V${sum}H${x + 7}`, `flow thin skip ${kind}`),
      s("path", { class: `flow thin ${kind}`, d: `M${x} ${y + 35}V${sum - 6}` }),
      s("circle", { class: `node small ${kind}`, cx: x, cy: sum, r: 6 }),
      s("path", {
        class: `plus ${kind}`,
        d: `M${x - 3} ${sum}H${x + 3}M${x} ${sum - 3}V${sum + 3}`,
      }),
      s("path", { class: `flow thin ${kind}`, d: `M${x} ${sum + 6}V${y + 57}` }),
    ],
    !hasSkip && s("path", { class: `flow thin ${kind}`, d: `M${x} ${y + 35}V${y + 57}` }),
  ];
}
