// Names with a bar for the probability of each.

import { fitted, h, onWidth, percent, replace, s, textWidth } from "./dom.js";

const ROW = 28; // height of a bar with the space around it
const MAX_WIDTH = 640;
const TICK = 64; // for the number after a bar

/** A drawing with a bar for each name: `full` is as long as there is room, `chosen` names are bold. */
export function bars(names, probabilities, { label, chosen, full = 1 }) {
  const box = h("div", { class: "drawing" });
  const head = Math.min(180, Math.max(60, ...names.map((name) => textWidth(name, 13, 700))) + 14);
  const height = names.length * ROW;
  onWidth(box, (width) => {
    const length = Math.min(width, MAX_WIDTH) - head - TICK;
    const rows = names.map((name, i) =>
      s(
        "g",
        { transform: `translate(0 ${i * ROW})` },
        s(
          "text",
          { class: `axis-word end ${chosen(name) ? "chosen" : ""}`, x: head - 8, y: 19 },
          fitted(name, head - 10, 13, chosen(name) ? 700 : 400),
        ),
        full === 1 &&
          s("rect", { class: "track", x: head, y: 5, width: length, height: 18, rx: 3 }),
        s("rect", {
          class: "bar",
          x: head,
          y: 5,
          width: Math.max(1, (probabilities[i] / full) * length).toFixed(1),
          height: 18,
          rx: 3,
        }),
        s(
          "text",
          { class: "tick start", x: head + length + 8, y: 19 },
          percent(probabilities[i], 1),
        ),
      ),
    );
    const size = { viewBox: `0 0 ${width} ${height}`, width, height };
    replace(box, s("svg", { ...size, role: "img", "aria-label": label }, rows));
  });
  return box;
}
