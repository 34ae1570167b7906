// Parts that several views have.

import { bdi, gap, h, number, replace, s } from "./dom.js";
import { said, t } from "./i18n.js";
import { shares } from "./mix.js";

const SHAPES = [
  (r) => `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`,
  (r) => polygon(4, r * 1.2, Math.PI / 4),
  (r) => polygon(3, r * 1.35, -Math.PI / 2),
  (r) => polygon(4, r * 1.3, 0),
  (r) => polygon(3, r * 1.35, Math.PI / 2),
  (r) => cross(r * 1.15, 0),
  (r) => polygon(6, r * 1.15, 0),
  (r) => cross(r * 1.15, Math.PI / 4),
  (r) => star(r * 1.4),
];
export const COLORS = 8; // with 9 shapes 72 looks, as 8 and 9 have no common factor

function polygon(corners, r, turn) {
  const points = Array.from({ length: corners }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / corners;
    return `${(r * Math.cos(angle)).toFixed(2)} ${(r * Math.sin(angle)).toFixed(2)}`;
  });
  return `M${points.join("L")}Z`;
}

function cross(r, turn) {
  const arm = r / 3;
  const outline = [
    [-arm, -r], [arm, -r], [arm, -arm], [r, -arm], [r, arm], [arm, arm],
    [arm, r], [-arm, r], [-arm, arm], [-r, arm], [-r, -arm], [-arm, -arm],
  ]; // prettier-ignore
  const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  const points = outline.map(
    ([x, y]) => `${(x * cos - y * sin).toFixed(2)} ${(x * sin + y * cos).toFixed(2)}`,
  );
  return `M${points.join("L")}Z`;
}

function star(r) {
  const points = Array.from({ length: 10 }, (_, i) => {
    const angle = -Math.PI / 2 + (Math.PI * i) / 5;
    const length = i % 2 ? r * 0.42 : r;
    return `${(length * Math.cos(angle)).toFixed(2)} ${(length * Math.sin(angle)).toFixed(2)}`;
  });
  return `M${points.join("L")}Z`;
}

/** The mark of a group: its own color and its own shape. */
export function symbol(group, r = 5.5) {
  return s("path", {
    class: `symbol c${group % COLORS}`,
    d: SHAPES[group % SHAPES.length](r),
  });
}

/** The same mark inside of text. */
export function inlineSymbol(group) {
  return s(
    "svg",
    { class: "inline", width: 16, height: 16, "aria-hidden": "true" },
    s("g", { transform: "translate(8 8)" }, symbol(group, 5)),
  );
}

/** A name of a layer: "layer 1" and "average" in the language of the page. */
export function layerName(name) {
  const index = /^layer (\d+)$/.exec(name);
  return index ? t("layer", { n: index[1] }) : t(name);
}

/** Sliders for the shares s_0 … s_L and γ; `oninput(shares, gamma)` is called at every move. */
export function mixControls(names, { amounts, gamma }, oninput) {
  const outputs = [];
  const sliders = [];
  let factor;
  let factorOutput;
  const update = () => {
    const values = sliders.map((slider) => Number(slider.value));
    const weights = shares(values);
    weights.forEach((weight, i) => {
      outputs[i].textContent = number(weight);
      sliders[i].setAttribute("aria-valuetext", `s${i} = ${number(weight)}`);
    });
    factorOutput.textContent = number(Number(factor.value));
    return { values, weights, gamma: Number(factor.value) };
  };
  const changed = () => oninput(update());
  const row = (label, name, slider, output) =>
    h(
      "label",
      { class: "slider" },
      h("span", { class: "term" }, label),
      h("span", { class: "what" }, name),
      slider,
      output,
    );
  const rows = names.map((name, i) => {
    const slider = h("input", {
      type: "range",
      min: 0,
      max: 100,
      step: 1,
      value: amounts[i],
      input: changed,
    });
    slider.dataset.weight = String(i);
    const output = h("output");
    sliders.push(slider);
    outputs.push(output);
    return row(["s", h("sub", null, String(i))], name, slider, output);
  });
  factor = h("input", {
    type: "range",
    min: 0,
    max: 1.5,
    step: 0.05,
    value: gamma,
    input: changed,
  });
  factor.dataset.gamma = "";
  factorOutput = h("output");
  rows.push(row("γ", t("scale"), factor, factorOutput));
  update();
  const preset = (label, values) =>
    h(
      "button",
      {
        type: "button",
        class: "small",
        click: () => {
          sliders.forEach((slider, i) => (slider.value = String(values[i])));
          factor.value = "1";
          changed();
        },
      },
      label,
    );
  const only = (i) => names.map((_, j) => (i === j ? 100 : 0));
  return h(
    "fieldset",
    { class: "mix" },
    h("legend", null, t("mixLegend")),
    rows,
    h(
      "div",
      { class: "presets" },
      preset(
        t("equal"),
        names.map(() => 50),
      ),
      names.map((_, i) => preset(t("only", { n: i }), only(i))),
    ),
  );
}

/** What amounts and γ the address says, or equal ones. */
export function readMix(context, count) {
  const given = context.get("s", "").split(",").map(Number);
  const valid =
    given.length === count && given.every((x) => Number.isFinite(x) && x >= 0 && x <= 100);
  const gamma = Number(context.get("gamma", "1"));
  return {
    amounts: valid ? given : Array(count).fill(50),
    gamma: Number.isFinite(gamma) && gamma >= 0 && gamma <= 1.5 ? gamma : 1,
  };
}

/** Keep them in the address. */
export function writeMix(context, { values, gamma }) {
  const same = values.every((value) => value === 50);
  context.set({ s: same ? undefined : values.join(","), gamma: gamma === 1 ? undefined : gamma });
}

/** One of several choices, as radio buttons. */
export function choice(legend, name, options, current, onchange) {
  return h(
    "fieldset",
    { class: "choice" },
    h("legend", null, legend),
    h(
      "div",
      { class: "segments" },
      options.map(([value, label]) =>
        h(
          "label",
          null,
          h("input", {
            type: "radio",
            name,
            value,
            checked: value === current,
            change: () => onchange(value),
          }),
          h("span", null, label),
        ),
      ),
    ),
  );
}

/** A field with its label above. */
export function field(label, input, hint) {
  const id = `hint-${Math.random().toString(36).slice(2)}`;
  if (hint) input.setAttribute("aria-describedby", id);
  return h(
    "div",
    { class: "field" },
    h("label", null, h("span", null, label), input),
    hint && h("p", { class: "hint", id }, hint),
  );
}

/** A box that says what went wrong, and offers to try again. */
export function errorBox(error, retry) {
  const reason = said(error.message);
  const space = gap([t("refused"), reason.text], 1);
  const isOurs = error.kind === "refused" || error.kind === "key";
  const text =
    error.kind === "unreachable"
      ? t("unreachable")
      : isOurs
        ? [t("refused"), space, bdi(reason.text, { lang: reason.lang })]
        : t("failed");
  return h(
    "div",
    { class: "error", role: "alert" },
    h("p", null, text),
    retry && h("button", { type: "button", click: retry }, t("again")),
  );
}

const running = new WeakMap();

/** Ask for data and draw them; meanwhile the old figure stays, and an error is told in its place. */
export async function load(target, ask, draw) {
  const turn = {};
  running.set(target, turn);
  target.setAttribute("aria-busy", "true");
  const wait = setTimeout(() => {
    if (!target.hasChildNodes())
      replace(target, h("p", { class: "wait", role: "status" }, t("wait")));
  }, 200);
  try {
    const answer = await ask();
    if (running.get(target) === turn) draw(answer);
  } catch (error) {
    if (running.get(target) !== turn) return;
    if (!error.kind) console.error(error);
    replace(
      target,
      errorBox(error, () => load(target, ask, draw)),
    );
  } finally {
    clearTimeout(wait);
    if (running.get(target) === turn) target.removeAttribute("aria-busy");
  }
}

/** Words of a sentence as buttons. */
export function wordButtons(tokens, { label, pressed, onclick }) {
  return h(
    "div",
    { class: "words", role: "group", "aria-label": label },
    tokens.map((token, i) =>
      h(
        "button",
        { type: "button", class: "word", "aria-pressed": i === pressed, click: () => onclick(i) },
        bdi(token),
      ),
    ),
  );
}

/** The style of a running text that is shown over all others near the pointer. */
export class Tooltip {
  constructor() {
    this.element = h("div", { class: "tooltip", "aria-hidden": "true", hidden: true });
  }

  show(near, ...content) {
    replace(this.element, ...content);
    this.element.hidden = false;
    const box = near.getBoundingClientRect();
    const own = this.element.getBoundingClientRect();
    const left = Math.min(
      Math.max(8, box.left + box.width / 2 - own.width / 2),
      innerWidth - own.width - 8,
    );
    const above = box.top - own.height - 10;
    this.element.style.setProperty("left", `${left}px`);
    this.element.style.setProperty("top", `${above > 8 ? above : box.bottom + 10}px`);
  }

  hide() {
    this.element.hidden = true;
  }
}
