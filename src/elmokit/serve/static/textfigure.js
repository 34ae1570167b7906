// A text with marks as a drawing, so that it can be saved like every other figure.

import { h, s } from "./dom.js";

/** Draw what an element of the page shows: boxes with a color of their own, and text on them. */
export function drawText(content, ground) {
  const frame = content.getBoundingClientRect();
  const elements = [...content.querySelectorAll("*")];
  const size = { width: Math.ceil(frame.width), height: Math.ceil(frame.height) };
  return s(
    "svg",
    { viewBox: `0 0 ${size.width} ${size.height}` },
    elements.map((element) => boxes(element, frame, ground)),
    textNodes(content).map((node) => words(node, frame)),
  );
}

function boxes(element, frame, ground) {
  const style = getComputedStyle(element);
  const fill = solid(style.backgroundColor, ground);
  if (fill === solid(ground, ground)) return [];
  const line = parseFloat(style.borderTopWidth);
  return [...element.getClientRects()].map((box) =>
    s("rect", {
      x: box.left - frame.left + line / 2,
      y: box.top - frame.top + line / 2,
      width: box.width - line,
      height: box.height - line,
      rx: parseFloat(style.borderTopLeftRadius),
      fill,
      stroke: line ? solid(style.borderTopColor, ground) : undefined,
    }),
  );
}

function textNodes(content) {
  const walker = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  return nodes;
}

/** An element for each line that a piece of text takes up. */
function words(node, frame) {
  const style = getComputedStyle(node.parentNode);
  const font = { family: style.fontFamily, size: style.fontSize, weight: style.fontWeight };
  const canvas = h("canvas").getContext("2d");
  canvas.font = `${font.weight} ${font.size} ${font.family}`;
  const { fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = canvas.measureText("x");
  return lines(node).map(({ text, left, top, height }) =>
    s(
      "text",
      {
        x: left - frame.left,
        y: top - frame.top + (height - above - below) / 2 + above,
        fill: style.color,
        "font-family": font.family,
        "font-size": font.size,
        "font-weight": font.weight,
      },
      text,
    ),
  );
}

/** Where the lines of a piece of text are: [{ text, left, top, height }]. */
function lines(node) {
  const range = document.createRange();
  const found = [];
  let at = 0;
  for (const character of node.data) {
    range.setStart(node, at);
    at += character.length;
    range.setEnd(node, at);
    const { left, top, width, height } = range.getBoundingClientRect();
    const last = found.at(-1);
    const continues = last !== undefined && Math.abs(last.top - top) < 2;
    if (continues) {
      last.text += character;
      last.left = Math.min(last.left, left);
    } else if (width > 0 && character.trim()) {
      found.push({ text: character, left, top, height });
    }
  }
  return found;
}

/** A color as it looks on a ground, in the notation that every program reads. */
function solid(color, ground) {
  const canvas = h("canvas", { width: 1, height: 1 }).getContext("2d");
  for (const one of [ground, color]) {
    canvas.fillStyle = one;
    canvas.fillRect(0, 0, 1, 1);
  }
  const [red, green, blue] = canvas.getImageData(0, 0, 1, 1).data;
  return `rgb(${red}, ${green}, ${blue})`;
}
