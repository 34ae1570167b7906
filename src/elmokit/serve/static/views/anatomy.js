// Anatomy: a token on its way from characters to the mix, with the numbers of a real sentence.

import { bdi, fitted, h, number, onWidth, replace, s } from "../dom.js";
import { TEXTS } from "../examples.js";
import { figure } from "../figure.js";
import { FORMULAS } from "../formulas.js";
import { t } from "../i18n.js";
import { mixed, shares } from "../mix.js";
import { field, load, mixControls, readMix, wordButtons, writeMix } from "../widgets.js";
import { drawEncoder, encoderParts } from "./encoder.js";
import { drawLattice } from "./lattice.js";
import { GUTTER } from "./strokes.js";

const MIN_WIDTH = 760;
const MAX_WIDTH = 1000;
const MIDDLE = 36; // between the two directions
const STRIP = 44;
const MAX_CELLS = 128; // of a strip; more columns are averaged
const LEVELS = 24; // shades of a color

export function render(root, context) {
  const texts = TEXTS[context.textLanguage];
  const text = h("input", {
    type: "text",
    value: context.get("text", texts.sentence),
    required: true,
  });
  const result = h("div", { class: "result" });
  const draw = () =>
    load(
      result,
      () => context.api.layers(context.model.id, [text.value]),
      (answer) => {
        if (answer.sentences[0].tokens.length === 0)
          replace(result, h("p", { class: "empty" }, t("needText")));
        else new AnatomyView(result, context, answer);
      },
    );
  const submit = (event) => {
    event.preventDefault();
    context.set({ text: text.value === texts.sentence ? undefined : text.value, token: undefined });
    draw();
  };
  replace(
    root,
    h(
      "form",
      { class: "panel wide row", submit },
      field(t("sentence"), text),
      h("button", { type: "submit", class: "primary" }, t("showIt")),
    ),
    result,
  );
  draw();
}

/** The names of the parts of a model, in the order of the flow. */
function partsOf(sizes) {
  const hasSkip = sizes.skip_connections && sizes.num_layers > 1;
  const models = ["forward", "backward", ...(hasSkip ? ["skip"] : [])];
  return [...encoderParts(sizes), ...models, "vectors", "mix"];
}

class AnatomyView {
  constructor(target, context, answer) {
    this.context = context;
    this.answer = answer;
    this.sentence = answer.sentences[0];
    this.tokens = this.sentence.tokens;
    this.sizes = { ...context.model.architecture, num_layers: answer.num_layers };
    this.parts = partsOf(this.sizes);
    const preferred = context.get(
      "token",
      context.get("text") === undefined ? TEXTS[context.textLanguage].token : 0,
    );
    this.token = Math.min(Math.max(0, Number(preferred) || 0), this.tokens.length - 1);
    this.active = null;
    this.build(target);
  }

  get numLayers() {
    return this.answer.num_layers;
  }

  build(target) {
    const title = t("anatomyTitle");
    this.words = h("div");
    this.box = h("div", {
      class: "drawing scroll",
      tabindex: "0",
      role: "region",
      "aria-label": title,
    });
    this.mix = readMix(this.context, this.numLayers + 1);
    this.weights = shares(this.mix.amounts);
    const names = Array.from({ length: this.numLayers + 1 }, (_, i) => t("layer", { n: i }));
    const controls = mixControls(names, this.mix, (values) => {
      this.weights = values.weights;
      this.mix = { amounts: values.values, gamma: values.gamma };
      writeMix(this.context, values);
      this.draw();
    });
    this.list = h("ol", { class: "parts" });
    replace(
      target,
      this.words,
      h(
        "div",
        { class: "anatomy-grid" },
        figure({
          title,
          note: t("anatomyNote"),
          name: "elmokit-anatomy",
          content: h("div", null, this.box, controls),
          rows: () => this.rows(),
        }),
        h(
          "section",
          { class: "explain", "aria-label": t("partsTitle") },
          h("h3", null, t("partsTitle")),
          this.list,
        ),
      ),
    );
    this.drawWords();
    this.drawParts();
    onWidth(this.box, (width) => {
      this.width = Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, width));
      this.draw();
    });
  }

  drawWords() {
    replace(
      this.words,
      h("p", { class: "note" }, t("chooseToken")),
      wordButtons(this.tokens, {
        label: t("chooseToken"),
        pressed: this.token,
        onclick: (i) => this.select(i),
      }),
    );
  }

  select(i) {
    const hadFocus = this.words.contains(document.activeElement);
    this.token = i;
    this.context.set({ token: i });
    this.drawWords();
    if (hadFocus) this.words.querySelectorAll("button")[i].focus();
    this.draw();
  }

  drawParts() {
    const values = this.textValues();
    replace(
      this.list,
      this.parts.map((part, i) => {
        const button = h(
          "button",
          {
            type: "button",
            class: "plain",
            "aria-pressed": false,
            click: () => this.activate(this.active === part ? null : part),
          },
          h("span", { class: "badge", "aria-hidden": "true" }, String(i + 1)),
          h("span", null, t(`part.${part}`, values)),
        );
        const item = h(
          "li",
          null,
          h("h4", null, button),
          h("p", null, t(`about.${this.explained(part)}`, values)),
          FORMULAS[part](this.sizes),
        );
        item.dataset.part = part;
        return item;
      }),
    );
  }

  /** The text about a part: most models read bytes where others read characters. */
  explained(part) {
    return part === "characters" && this.sizes.token_encoder !== "unicode" ? "bytes" : part;
  }

  textValues() {
    const { sizes } = this;
    return {
      d: sizes.character_dim,
      w: sizes.word_dim,
      filters: (sizes.filters ?? []).reduce((sum, [, count]) => sum + count, 0),
      max: sizes.max_characters,
      p: sizes.projection_dim,
      cells: sizes.lstm_dim,
      layers: this.numLayers,
      count: 2 * this.numLayers + 1,
      rows: this.numLayers + 1,
    };
  }

  activate(part) {
    this.active = part;
    for (const item of this.list.children) {
      const isActive = item.dataset.part === part;
      item.classList.toggle("active", isActive);
      item.querySelector("button").setAttribute("aria-pressed", String(isActive));
    }
    const svg = this.box.querySelector("svg");
    svg.classList.toggle("focused", part !== null);
    for (const group of svg.querySelectorAll("[data-part]")) {
      group.classList.toggle("active", group.dataset.part.split(" ").includes(part));
    }
  }

  // ------------------------------------------------------------------ drawing
  part(names, ...content) {
    const group = s("g", { class: "part" }, ...content);
    group.dataset.part = names;
    return group;
  }

  badge(part, x, y) {
    const number = this.parts.indexOf(part) + 1;
    if (number === 0) return null;
    return s(
      "g",
      {
        class: "badge-mark",
        transform: `translate(${x} ${y})`,
        click: () => this.activate(this.active === part ? null : part),
      },
      s("circle", { r: 9 }),
      s("text", { y: 4 }, String(number)),
    );
  }

  caption(part, x, y, text, className = "") {
    return [
      this.badge(part, x + 9, y - 4),
      s("text", { class: `caption ${className}`, x: x + 24, y }, text),
    ];
  }

  draw() {
    const inner = this.width - GUTTER;
    this.half = Math.floor((inner - MIDDLE) / 2);
    this.left = GUTTER;
    this.right = GUTTER + this.half + MIDDLE;
    const encoder = drawEncoder(this);
    const lattice = drawLattice(this, encoder);
    const strips = this.drawStrips(lattice.bottom + 34);
    const height = strips.bottom + 6;
    const label = t("anatomyLabel", {
      token: this.tokens[this.token],
      layers: this.numLayers,
      count: 2 * this.numLayers + 1,
    });
    replace(
      this.box,
      s(
        "svg",
        {
          class: "anatomy",
          viewBox: `0 0 ${this.width} ${height}`,
          width: this.width,
          height,
          role: "img",
          "aria-label": label,
        },
        encoder.element,
        lattice.element,
        strips.element,
      ),
    );
    this.activate(this.active);
  }

  // ------------------------------------------------------------------ vectors and mix
  /** The vector of the chosen token in each layer, and the mix: (L + 2, dimensions). */
  vectors() {
    const layers = this.sentence.layers.map((layer) => layer[this.token]);
    return { layers, elmo: mixed(layers, this.weights, this.mix.gamma) };
  }

  cut(vector, [start, end]) {
    const values = vector.slice(start, end);
    const bin = Math.ceil(values.length / MAX_CELLS);
    if (bin === 1) return values;
    return Array.from({ length: Math.ceil(values.length / bin) }, (_, i) => {
      const own = values.slice(i * bin, (i + 1) * bin);
      return own.reduce((sum, value) => sum + value, 0) / own.length;
    });
  }

  /** A strip of colored cells: one path for each shade, not an element for each cell. */
  strip(values, x, y, width, height, scale) {
    const paths = new Map();
    const cell = width / values.length;
    values.forEach((value, i) => {
      const level = Math.min(LEVELS, Math.round((LEVELS * Math.abs(value)) / scale));
      if (level === 0) return;
      const key = `${value < 0 ? "negative" : "positive"} ${level}`;
      const piece = `M${(x + i * cell).toFixed(2)} ${y}h${(cell + 0.05).toFixed(2)}v${height}h${(-cell - 0.05).toFixed(2)}z`;
      paths.set(key, (paths.get(key) ?? "") + piece);
    });
    return [
      s("rect", { class: "strip-ground", x, y, width, height }),
      [...paths].map(([key, d]) => {
        const [kind, level] = key.split(" ");
        return s("path", {
          class: `strip ${kind}`,
          d,
          "fill-opacity": (Number(level) / LEVELS).toFixed(3),
        });
      }),
      s("rect", {
        class: "strip-frame",
        x: x - 0.5,
        y: y - 0.5,
        width: width + 1,
        height: height + 1,
        rx: 2,
      }),
    ];
  }

  drawStrips(top) {
    const { layers, elmo } = this.vectors();
    const { forward, backward } = this.answer;
    const sorted = layers
      .flat()
      .map(Math.abs)
      .sort((a, b) => a - b);
    const scale = sorted[Math.floor(0.98 * (sorted.length - 1))] || 1;
    const token = this.tokens[this.token];
    const rows = layers.map((layer, j) => {
      const y = top + 34 + j * STRIP;
      const names = j === 0 ? ["x", "x"] : [`→ h${subscript(j)}`, `← h${subscript(j)}`];
      return [
        [forward, backward].map((span, i) => [
          s("text", { class: "strip-name", x: i ? this.right : this.left, y: y - 4 }, names[i]),
          this.strip(this.cut(layer, span), i ? this.right : this.left, y, this.half, 20, scale),
        ]),
      ];
    });
    const weights = layers.map((_, j) => {
      const y = top + 34 + j * STRIP;
      return [
        s(
          "text",
          { class: "caption", x: 24, y: y + 9 },
          "s",
          s("tspan", { class: "index", dy: 3 }, String(j)),
          s("tspan", { dy: -3 }, ` = ${number(this.weights[j])}`),
        ),
        s("rect", { class: "track", x: 24, y: y + 15, width: 74, height: 5, rx: 2.5 }),
        s("rect", {
          class: "bar",
          x: 24,
          y: y + 15,
          width: Math.max(0, 74 * this.weights[j]).toFixed(1),
          height: 5,
          rx: 2.5,
        }),
      ];
    });
    const sumY = top + 34 + layers.length * STRIP + 6;
    const total = [
      s("path", { class: "rule", d: `M24 ${sumY - 10}H${this.width}` }),
      s(
        "text",
        { class: "caption strong", x: 24, y: sumY + 22 },
        "ELMo",
        s("tspan", { class: "index", dy: 4 }, "k"),
      ),
      s("text", { class: "caption faint", x: 24, y: sumY + 40 }, `γ = ${number(this.mix.gamma)}`),
      [forward, backward].map((span, i) =>
        this.strip(
          this.cut(elmo, span),
          i ? this.right : this.left,
          sumY + 6,
          this.half,
          30,
          scale,
        ),
      ),
    ];
    const bottom = sumY + 84;
    const element = s(
      "g",
      { "aria-hidden": "true" },
      this.part(
        "vectors",
        this.caption(
          "vectors",
          0,
          top + 4,
          t("label.vectors", { count: 2 * this.numLayers + 1, token: fitted(token, 200, 13) }),
          "strong",
        ),
        rows,
      ),
      this.part(
        "mix",
        weights,
        this.badge("mix", 9, sumY + 18),
        total,
        this.scaleBar(scale, sumY + 62),
      ),
    );
    return { element, bottom };
  }

  scaleBar(scale, y) {
    const width = 132;
    const x = this.width - width - 44;
    const steps = Array.from({ length: 22 }, (_, i) => (2 * (i + 0.5)) / 22 - 1);
    return [
      this.strip(steps, x, y, width, 8, 1),
      s("text", { class: "tick", x: x - 6, y: y + 8 }, number(-scale, 1)),
      s("text", { class: "tick start", x: x + width + 6, y: y + 8 }, number(scale, 1)),
      s(
        "text",
        { class: "caption faint", x: this.left, y: y + 8 },
        this.answer.dimensions / 2 > MAX_CELLS
          ? t("averaged", { count: Math.ceil(this.answer.dimensions / 2 / MAX_CELLS) })
          : t("eachCell"),
      ),
    ];
  }

  rows() {
    const { layers, elmo } = this.vectors();
    const { forward, backward } = this.answer;
    const columns = Array.from({ length: forward[1] - forward[0] }, (_, i) => `v${i}`);
    const halves = layers.flatMap((layer, j) =>
      j === 0
        ? [["token", this.weights[0], ...layer.slice(...forward)]]
        : [
            [`forward_${j}`, this.weights[j], ...layer.slice(...forward)],
            [`backward_${j}`, this.weights[j], ...layer.slice(...backward)],
          ],
    );
    const { gamma } = this.mix;
    return [
      ["vector", "weight", ...columns],
      ...halves,
      ["elmo_forward", gamma, ...elmo.slice(...forward)],
      ["elmo_backward", gamma, ...elmo.slice(...backward)],
    ];
  }
}

function subscript(n) {
  return String(n).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
}
