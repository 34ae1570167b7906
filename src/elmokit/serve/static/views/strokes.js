// Lines of the anatomy.

import { s } from "../dom.js";

export const GUTTER = 116; // room for labels at the left

/** A line. */
export const arrow = (d, className = "flow") => s("path", { class: `${className} arrow`, d });

/** A line with a head at its end, drawn as a shape so that it is the same in every saved file. */
export function pointed(x1, y1, x2, y2, className = "flow") {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const wing = (turn) =>
    `${(x2 - 6 * Math.cos(angle + turn)).toFixed(1)} ${(y2 - 6 * Math.sin(angle + turn)).toFixed(1)}`;
  return s(
    "g",
    { class: className },
    s("path", {
      class: "shaft",
      d: `M${x1} ${y1}L${(x2 - 3 * Math.cos(angle)).toFixed(1)} ${(y2 - 3 * Math.sin(angle)).toFixed(1)}`,
    }),
    s("path", { class: "head", d: `M${x2} ${y2}L${wing(0.45)}L${wing(-0.45)}Z` }),
  );
}
