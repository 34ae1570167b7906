// Anatomy: a token on its way from characters to the mix, with the numbers of a real sentence.

import { bdi, fitted, h, number, onWidth, replace, s } from "../dom.js";
import { TEXTS } from "../examples.js";
import { figure } from "../figure.js";
import { FORMULAS } from "../formulas.js";
import { t } from "../i18n.js";
import { mixed, shares } from "../mix.js";
import { field, load, mixControls, readMix, wordButtons, writeMix } from "../widgets.js";

const MIN_WIDTH = 760;
const MAX_WIDTH = 1000;
const GUTTER = 116; // labels at the left
const CELL = 22; // a character
const CONV = 21; // a row of convolutions
const MIDDLE = 36; // between the two directions
const ROW = 66; // a layer of LSTMs
const STRIP = 44;
const MAX_CELLS = 128; // of a strip; more columns are averaged
const LEVELS = 24; // shades of a color
const MAX_DRAWN_LAYERS = 6;

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
  const encoder =
    sizes.token_encoder === "words"
      ? ["words"]
      : [
          "characters",
          "convolutions",
          "maximum",
          ...(sizes.highway_layers ? ["highway"] : []),
          "projection",
        ];
  return [
    ...encoder,
    "forward",
    "backward",
    ...(sizes.skip_connections && sizes.num_layers > 1 ? ["skip"] : []),
    "vectors",
    "mix",
  ];
}

const arrow = (d, className = "flow") => s("path", { class: `${className} arrow`, d });

/** A line with a head at its end, drawn as a shape so that it is the same in every saved file. */
function pointed(x1, y1, x2, y2, className = "flow") {
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
          h("p", null, t(`about.${part}`, values)),
          FORMULAS[part](this.sizes),
        );
        item.dataset.part = part;
        return item;
      }),
    );
  }

  textValues() {
    const { sizes } = this;
    return {
      d: sizes.character_dim,
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
    const encoder = this.sizes.token_encoder === "words" ? this.drawTable() : this.drawEncoder();
    const lattice = this.drawLattice(encoder);
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

  // ------------------------------------------------------------------ characters to the token vector
  /** What the encoder reads of the chosen token: [text, kind]. */
  units() {
    const token = this.tokens[this.token];
    if (this.sizes.token_encoder === "unicode")
      return [["⟨", "mark"], ...Array.from(token, (one) => [one, "byte"]), ["⟩", "mark"]];
    const bytes = Array.from(token).flatMap((one) => {
      const codes = [...new TextEncoder().encode(one)];
      return codes.length === 1
        ? [[one, "byte"]]
        : codes.map((code) => [code.toString(16).toUpperCase(), "hex"]);
    });
    const cut = bytes.slice(0, this.sizes.max_characters - 2);
    return [["⟨", "mark"], ...cut, ["⟩", "mark"], ["·", "pad"], ["·", "pad"]];
  }

  drawEncoder() {
    const { sizes, width } = this;
    const room = Math.max(6, Math.floor(((width - GUTTER) * 0.43) / CELL) - 1);
    let units = this.units();
    const isCut = units.length > room;
    if (isCut) units = units.slice(0, room);
    const space = (units.length + 1) * CELL;
    const x0 = GUTTER;
    const top = 6;
    const boxes = units.map(([text, kind], i) =>
      s(
        "g",
        { transform: `translate(${x0 + i * CELL} ${top})` },
        s("rect", { class: `unit ${kind}`, width: CELL - 3, height: 24, rx: 3 }),
        s("text", { class: `unit-text ${kind}`, x: (CELL - 3) / 2, y: 16.5 }, text),
      ),
    );
    const end = x0 + units.length * CELL;
    const dots = (y) => s("text", { class: "caption faint", x: end + 2, y }, "…");
    const vectors = units.map(([, kind], i) =>
      Array.from({ length: 4 }, (_, k) =>
        s("rect", {
          class: `vector-cell ${kind === "pad" ? "pad" : ""}`,
          x: x0 + i * CELL + 4,
          y: top + 32 + k * 9,
          width: CELL - 11,
          height: 8,
        }),
      ),
    );
    const convTop = top + 84;
    const filters = sizes.filters ?? [];
    const bottom = convTop + filters.length * CONV;
    const rows = filters.map(([size, count], i) =>
      this.convolution(units.length, size, count, i, x0, convTop + i * CONV),
    );
    // Maximum, highway and projection, on the right.
    const from = x0 + space;
    const rest = width - from;
    const at = (share) => Math.round(from + share * rest);
    const middle = (convTop + bottom) / 2;
    const maximum = this.stack(at(0.1), convTop, filters);
    const lines = filters.map((_, i) => {
      const y = convTop + i * CONV + CONV / 2 - 1;
      return pointed(
        Math.max(end, x0 + units.length * CELL) + (isCut ? 18 : 8),
        y,
        at(0.1) - 4,
        y,
        "flow thin",
      );
    });
    const highway = sizes.highway_layers
      ? this.highway(at(0.1) + 16, at(0.6), convTop, bottom)
      : null;
    const projection = this.projection(
      sizes.highway_layers ? at(0.6) + 14 : at(0.1) + 16,
      at(0.86),
      convTop,
      bottom,
    );
    const total = filters.reduce((sum, [, count]) => sum + count, 0);
    const element = s(
      "g",
      { "aria-hidden": "true" },
      this.part(
        "characters",
        this.caption("characters", 0, top + 16, t("label.characters")),
        boxes,
        isCut && dots(top + 16),
        s("text", { class: "caption faint", x: 24, y: top + 54 }, `d = ${sizes.character_dim}`),
        vectors,
        isCut && dots(top + 54),
      ),
      this.part("convolutions", this.badge("convolutions", 9, convTop + 9), rows),
      this.part(
        "maximum",
        lines,
        maximum,
        s("text", { class: "caption faint middle", x: at(0.1) + 8, y: bottom + 16 }, String(total)),
        this.caption("maximum", at(0.1) - 16, convTop - 18, t("label.maximum")),
      ),
      highway &&
        this.part(
          "highway",
          highway,
          this.caption(
            "highway",
            at(0.1) + 62,
            convTop - 18,
            t("label.highway") + (sizes.highway_layers > 1 ? ` × ${sizes.highway_layers}` : ""),
          ),
        ),
      this.part(
        "projection",
        projection,
        this.caption("projection", at(0.6) + 10, convTop - 18, t("label.projection")),
      ),
    );
    return {
      element,
      x: at(0.86) + 8,
      y: middle + (bottom - convTop) * 0.25 + 2,
      bottom: bottom + 18,
    };
  }

  convolution(count, size, filters, i, x0, y) {
    const positions = Math.max(1, count - size + 1);
    const shown = Math.min(size, count);
    const start = Math.min(1, Math.max(0, count - shown));
    const label = s(
      "text",
      { class: "caption small", x: 24, y: y + 13 },
      `w = ${size} · ${filters}`,
    );
    // A dot for each position of the window; those that the drawn window covers are left out.
    const dots = Array.from({ length: positions }, (_, k) => k)
      .filter((k) => k === start || Math.abs(k - start) > shown / 2)
      .map((k) =>
        s("circle", {
          class: "position",
          cx: x0 + (k + (shown - 1) / 2) * CELL + CELL / 2 - 1.5,
          cy: y + CONV / 2 - 1,
          r: 2.2,
        }),
      );
    const window = s("rect", {
      class: `window k${i % 8}`,
      x: x0 + start * CELL - 0.5,
      y: y + 2,
      width: shown * CELL - 2,
      height: CONV - 6,
      rx: 4,
    });
    return [label, window, dots];
  }

  stack(x, y, filters) {
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

  highway(x1, x2, top, bottom) {
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
        fitted("relu(Bu+b)", width * 0.33 - 4, 12),
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

  projection(x1, x2, top, bottom) {
    const middle = (top + bottom) / 2;
    const size = (bottom - top) * 0.5;
    const y = middle - size / 2;
    return [
      s("path", {
        class: "funnel",
        d: `M${x1 + 3} ${top + 1}L${x2 - 4} ${y}V${y + size}L${x1 + 3} ${bottom - 2}Z`,
      }),
      s("text", { class: "operation-text", x: (x1 + x2) / 2, y: middle + 4.5 }, "P"),
      s("rect", { class: "token-vector", x: x2, y, width: 16, height: size, rx: 3 }),
      s(
        "text",
        { class: "symbol-text", x: x2 + 23, y: middle + 5 },
        "x",
        s("tspan", { class: "index", dy: 4 }, "k"),
      ),
      s(
        "text",
        { class: "caption faint middle", x: x2 + 8, y: y - 8 },
        String(this.sizes.projection_dim),
      ),
    ];
  }

  drawTable() {
    const x = GUTTER;
    const element = s(
      "g",
      { "aria-hidden": "true" },
      this.part(
        "words",
        this.caption("words", 0, 50, t("label.words")),
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
        s("text", { class: "caption", x: x + 162, y: 24 + 3 * 13 + 10 }, this.tokens[this.token]),
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

  // ------------------------------------------------------------------ the two language models
  drawLattice(encoder) {
    const top = encoder.bottom + 26;
    const bus = top + 18;
    const words = ["<S>", ...this.tokens, "</S>"];
    const chosen = this.token + 1;
    const most = Math.max(3, Math.min(words.length, 2 * Math.floor(this.half / 96) + 1));
    const count = Math.min(most, words.length);
    const start = Math.max(0, Math.min(chosen - Math.floor(count / 2), words.length - count));
    const shown = {
      words: words.slice(start, start + count),
      first: start,
      chosen: chosen - start,
      isCutLeft: start > 0,
      isCutRight: start + count < words.length,
    };
    const layers = Math.min(this.numLayers, MAX_DRAWN_LAYERS);
    const forward = this.direction("forward", this.left, bus, shown, layers);
    const backward = this.direction("backward", this.right, bus, shown, layers);
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
      this.part(
        "projection forward backward words",
        pipe,
        [forward.x, backward.x].map((x) => pointed(x, bus - 0.75, x, bus + 12, "flow strong")),
      ),
      s("text", { class: "caption", x: 24, y: bus + 49 }, "x"),
      labels,
      this.part("forward skip", forward.element),
      this.part("backward skip", backward.element),
      this.part("forward", this.caption("forward", this.left, top, t("label.forward"), "strong")),
      this.part(
        "backward",
        this.caption("backward", this.right, top, t("label.backward"), "strong"),
      ),
      this.parts.includes("skip") &&
        this.part(
          "skip",
          this.badge("skip", 9, bus + 74 + ROW + 44),
          s("text", { class: "caption small", x: 24, y: bus + 74 + ROW + 48 }, t("label.skip")),
        ),
    );
    return { element, bottom: low, columns: [forward.x, backward.x] };
  }

  direction(name, x0, bus, shown, layers) {
    const { words, chosen } = shown;
    const pitch = this.half / words.length;
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
      const isToken = index >= 0 && index < this.tokens.length;
      const cells = Array.from({ length: layers }, (_, j) =>
        this.lstmCell(x, top + j * ROW, box, kind, j),
      );
      return s(
        "g",
        isToken ? { class: "column", click: () => this.select(index) } : null,
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
          s("text", { class: "caption faint middle", x: x0 + this.half + 6, y: y + 4 }, "…"),
        );
    }
    return { element: s("g", null, column, links, parts), x: center(chosen) };
  }

  lstmCell(x, y, box, kind, j) {
    const hasSkip = j > 0 && this.sizes.skip_connections;
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
