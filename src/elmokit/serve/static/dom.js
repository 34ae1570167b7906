// Elements of the page. Strings become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const MATH = "http://www.w3.org/1998/Math/MathML";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return element;
}

/** Make an HTML element; a function among the properties is the listener of an event. */
export function h(name, props, ...children) {
  return fill(document.createElement(name), props, children);
}

/** Make an SVG element. */
export function s(name, props, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

/** Make a MathML element. */
export function m(name, ...children) {
  return fill(document.createElementNS(MATH, name), null, children);
}

/** A text of the user's: what it does to the direction of writing ends where it ends. */
export function bdi(text, props) {
  return h("bdi", { dir: "auto", ...props }, String(text));
}

/** Replace what an element contains. */
export function replace(target, ...children) {
  target.replaceChildren(...children.flat(Infinity).filter(Boolean));
  return target;
}

const WIDE = "\\u2e80-\\u303f\\u3040-\\u30ff\\u3400-\\u9fff\\uf900-\\ufaff\\uff00-\\uffef";
const NO_SPACE_AFTER = new RegExp(`[${WIDE}(\\[{‘“]$`, "u");
const NO_SPACE_BEFORE = new RegExp(`^([${WIDE}]|[.,;:!?%)\\]}’”]+$|n't$|'\\w{1,2}$)`, "u");

/** The space before token `i` in running text: none inside Chinese or before a full stop. */
export function gap(tokens, i) {
  if (i === 0) return "";
  return NO_SPACE_AFTER.test(tokens[i - 1]) || NO_SPACE_BEFORE.test(tokens[i]) ? "" : " ";
}

/** Tokens as running text. */
export function joined(tokens) {
  return tokens.map((token, i) => gap(tokens, i) + token).join("");
}

/** A sentence with tokens start:end marked. */
export function marked({ tokens, start, end }) {
  const before = tokens.slice(0, start);
  const word = tokens.slice(start, end);
  const after = tokens.slice(end);
  const space = (i) => (i > 0 && i < tokens.length ? gap(tokens, i) : "");
  return h(
    "bdi",
    { dir: "auto", class: "sentence" },
    joined(before) + space(start),
    h("mark", null, joined(word)),
    space(end) + joined(after),
  );
}

let context = null;

/** The width of a text in pixels, in the font of figures. */
export function textWidth(text, size = 13, weight = 400) {
  context ??= document.createElement("canvas").getContext("2d");
  context.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return context.measureText(text).width;
}

/** A text cut to a width, with … at its end. */
export function fitted(text, width, size = 13, weight = 400) {
  if (textWidth(text, size, weight) <= width) return text;
  let characters = Array.from(text);
  while (characters.length > 1 && textWidth(characters.join("") + "…", size, weight) > width) {
    characters = characters.slice(0, -1);
  }
  return characters.join("") + "…";
}

/** A number with a fixed count of digits and a real minus sign. */
export function number(value, digits = 2) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? (0).toFixed(digits) : text.replace("-", "−");
}

/** A share as per cent. */
export function percent(share, digits = 0) {
  return `${number(100 * share, digits)}%`;
}

/** Call `draw(width)` now and whenever the width of an element changes. */
export function onWidth(element, draw) {
  let last = 0;
  const observer = new ResizeObserver(() => {
    const width = Math.floor(element.clientWidth);
    if (!element.isConnected || width === 0 || width === last) return;
    last = width;
    draw(width);
  });
  observer.observe(element);
  return observer;
}

/** Let arrow keys move through the items of a group, which is one stop of the tab key. */
export function roving(items, { onfocus, onselect, current = 0 } = {}) {
  const move = (i) => {
    const to = (i + items.length) % items.length;
    items.forEach((item, j) => item.setAttribute("tabindex", j === to ? "0" : "-1"));
    items[to].focus({ preventScroll: false });
  };
  items.forEach((item, i) => {
    item.setAttribute("tabindex", i === Math.min(current, items.length - 1) ? "0" : "-1");
    item.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) move(i + step);
      else if (event.key === "Home") move(0);
      else if (event.key === "End") move(items.length - 1);
      else if ((event.key === "Enter" || event.key === " ") && onselect) onselect(i);
      else return;
      event.preventDefault();
    });
    if (onfocus) item.addEventListener("focus", () => onfocus(i));
    if (onselect) item.addEventListener("click", () => onselect(i));
  });
}
