// Two sentences: the cosine of each word of one with each word of the other, a layer at a time.

import { bdi, fitted, h, joined, number, onWidth, replace, s } from "../dom.js";
import { TEXTS } from "../examples.js";
import { figure } from "../figure.js";
import { t } from "../i18n.js";
import { cosine } from "../mix.js";
import { choice, field, layerName, load } from "../widgets.js";

const HEAD = 88; // room for the words of the first sentence
const CELL = { min: 26, max: 56, height: 30 };

export function render(root, context) {
  const texts = TEXTS[context.textLanguage];
  const first = h("input", { type: "text", value: context.get("a", texts.first), required: true });
  const second = h("input", {
    type: "text",
    value: context.get("b", texts.second),
    required: true,
  });
  const result = h("div", { class: "result" });
  const draw = () => {
    const inputs = [first.value, second.value];
    load(
      result,
      () => context.api.layers(context.model.id, inputs),
      (answer) => {
        if (answer.sentences.some(({ tokens }) => tokens.length === 0)) {
          replace(result, h("p", { class: "empty" }, t("needTwo")));
        } else new PairView(result, context, answer);
      },
    );
  };
  const submit = (event) => {
    event.preventDefault();
    context.set({
      a: first.value === texts.first ? undefined : first.value,
      b: second.value === texts.second ? undefined : second.value,
      word: undefined,
    });
    draw();
  };
  replace(
    root,
    h(
      "form",
      { class: "panel wide", submit },
      field(t("firstSentence"), first),
      field(t("secondSentence"), second),
      h("button", { type: "submit", class: "primary" }, t("compare")),
    ),
    result,
  );
  draw();
}

/** The class of a number on its cell: a dark theme turns pale, a light one dark, at other values. */
function inkOn(value) {
  if (value > 0.8 || value < -0.9) return "strong";
  return Math.abs(value) > 0.6 ? "middle" : "";
}

/** Unit vectors need not be made: cosines of all pairs of tokens, (layers + 1, tokens, tokens). */
function cosines(one, other) {
  const tables = one.layers.map((layer, i) =>
    layer.map((row) => other.layers[i].map((column) => cosine(row, column))),
  );
  const average = (layers) =>
    layers[0].map((row, i) =>
      row.map((_, j) => layers.reduce((sum, layer) => sum + layer[i][j], 0)),
    );
  const [first, second] = [average(one.layers), average(other.layers)];
  return [...tables, first.map((row) => second.map((column) => cosine(row, column)))];
}

class PairView {
  constructor(target, context, answer) {
    this.context = context;
    this.sentences = answer.sentences;
    this.names = [...answer.sentences[0].layers.map((_, i) => `layer ${i}`), "average"];
    const [one, other] = answer.sentences;
    this.tables = [one, other].map((row) => [one, other].map((column) => cosines(row, column)));
    this.layer = this.names.indexOf(context.get("layer", `layer ${this.names.length - 2}`));
    if (this.layer < 0) this.layer = this.names.length - 2;
    this.selected = this.readSelected();
    this.build(target);
  }

  readSelected() {
    const [sentence, token] = this.context.get("word", "").split(".").map(Number);
    if (this.sentences[sentence]?.tokens[token] !== undefined) return [sentence, token];
    const [one, other] = this.sentences.map(({ tokens }) => tokens.map((x) => x.toLowerCase()));
    // A word that both sentences have is the interesting one; the longest of them is no "the".
    const shared = one.filter((token) => other.includes(token) && token.length > 1);
    shared.sort((a, b) => b.length - a.length);
    return [0, Math.max(0, one.indexOf(shared[0]))];
  }

  build(target) {
    const title = t("pairTitle");
    this.words = h("div", { class: "two" });
    this.box = h("div", {
      class: "drawing scroll",
      tabindex: "0",
      role: "region",
      "aria-label": title,
    });
    this.list = h("div", { class: "panel" });
    replace(
      target,
      choice(
        t("layerLegend"),
        "pair-layer",
        this.names.map((name) => [name, layerName(name)]),
        this.names[this.layer],
        (value) => {
          this.layer = this.names.indexOf(value);
          this.context.set({ layer: value });
          this.redraw();
        },
      ),
      h("section", { class: "panel" }, h("p", { class: "note" }, t("pairHint")), this.words),
      h(
        "div",
        { class: "pair" },
        figure({
          title,
          note: t("pairNote"),
          name: "elmokit-similarity",
          content: this.box,
          rows: () => this.rows(),
        }),
        this.list,
      ),
    );
    onWidth(this.box, (width) => {
      this.width = width;
      this.redraw();
    });
  }

  redraw() {
    this.drawWords();
    this.drawMatrix();
    this.drawList();
  }

  values(sentence) {
    const [own, token] = this.selected;
    return this.tables[own][sentence][this.layer][token];
  }

  select(sentence, token) {
    this.selected = [sentence, token];
    this.context.set({ word: `${sentence}.${token}` });
    const focused = document.activeElement?.dataset.word;
    this.redraw();
    if (focused) this.words.querySelector(`[data-word="${focused}"]`)?.focus();
  }

  drawWords() {
    const [own, chosen] = this.selected;
    const groups = this.sentences.map(({ tokens }, i) => {
      const values = this.values(i);
      const buttons = tokens.map((token, j) => {
        const pressed = i === own && j === chosen;
        const button = h(
          "button",
          {
            type: "button",
            class: "word shaded",
            "aria-pressed": pressed,
            "aria-label": `${token} ${number(values[j])}`,
            click: () => this.select(i, j),
          },
          bdi(token),
          h("small", null, number(values[j])),
        );
        button.dataset.word = `${i}.${j}`;
        button.style.setProperty("--strength", String(Math.max(0, values[j]).toFixed(3)));
        return button;
      });
      return h(
        "div",
        { class: "words", role: "group", "aria-label": t(i ? "secondSentence" : "firstSentence") },
        buttons,
      );
    });
    replace(this.words, groups);
  }

  drawMatrix() {
    const [{ tokens: rows }, { tokens: columns }] = this.sentences;
    const table = this.tables[0][1][this.layer];
    const size = Math.max(
      CELL.min,
      Math.min(CELL.max, Math.floor((this.width - HEAD - 4) / columns.length)),
    );
    const width = HEAD + size * columns.length + 4;
    const top = size >= 44 ? 30 : 74;
    const height = top + CELL.height * rows.length + 2;
    const [own, chosen] = this.selected;
    const cells = rows.flatMap((_, i) => {
      const best = Math.max(...table[i]);
      return columns.map((_, j) => {
        const value = table[i][j];
        const isActive = own === 0 ? i === chosen : j === chosen;
        return s(
          "g",
          {
            transform: `translate(${HEAD + j * size} ${top + i * CELL.height})`,
            click: () => this.select(0, i),
          },
          s("rect", { class: "cell-ground", width: size - 2, height: CELL.height - 2, rx: 3 }),
          s("rect", {
            class: `cell ${value < 0 ? "negative" : "positive"}`,
            "fill-opacity": Math.min(1, Math.abs(value)).toFixed(3),
            width: size - 2,
            height: CELL.height - 2,
            rx: 3,
          }),
          value === best &&
            s("rect", {
              class: "best",
              x: 1,
              y: 1,
              width: size - 4,
              height: CELL.height - 4,
              rx: 2,
            }),
          isActive &&
            s("rect", {
              class: "outline",
              x: -0.5,
              y: -0.5,
              width: size - 1,
              height: CELL.height - 1,
              rx: 3,
            }),
          size >= 34 &&
            s(
              "text",
              {
                class: `cell-text ${inkOn(value)}`,
                x: (size - 2) / 2,
                y: 18.5,
              },
              number(value),
            ),
        );
      });
    });
    const rowNames = rows.map((token, i) =>
      s(
        "text",
        {
          class: `axis-word end ${own === 0 && i === chosen ? "chosen" : ""}`,
          x: HEAD - 8,
          y: top + i * CELL.height + 18.5,
          click: () => this.select(0, i),
        },
        fitted(token, HEAD - 12, 13),
      ),
    );
    const columnNames = columns.map((token, j) => {
      const x = HEAD + j * size + (size - 2) / 2;
      const className = `axis-word ${own === 1 && j === chosen ? "chosen" : ""} ${top > 40 ? "" : "middle"}`;
      const position =
        top > 40 ? { transform: `translate(${x + 4} ${top - 8}) rotate(-60)` } : { x, y: top - 10 };
      return s(
        "text",
        { class: className, ...position, click: () => this.select(1, j) },
        fitted(token, top > 40 ? 68 : size - 2, 13),
      );
    });
    const label = t("pairLabel", { layer: layerName(this.names[this.layer]) });
    replace(
      this.box,
      s(
        "svg",
        { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
        columnNames,
        rowNames,
        cells,
      ),
    );
  }

  drawList() {
    const [own, chosen] = this.selected;
    const tokens = this.sentences[own].tokens;
    const lists = [1 - own, own].map((i) => {
      const ranked = this.sentences[i].tokens
        .map((token, j) => ({ token, j, value: this.values(i)[j] }))
        .filter(({ j }) => i !== own || j !== chosen)
        .sort((a, b) => b.value - a.value)
        .slice(0, 5);
      return [
        h("h4", null, t(i === own ? "inOwn" : "inOther")),
        h(
          "ol",
          { class: "near" },
          ranked.map(({ token, value }) =>
            h(
              "li",
              null,
              bdi(token, { class: "grow" }),
              h("span", { class: "score" }, number(value)),
            ),
          ),
        ),
      ];
    });
    replace(this.list, h("h3", null, t("nearestTo", { word: tokens[chosen] })), lists);
  }

  rows() {
    const [{ tokens: rows }, { tokens: columns }] = this.sentences;
    return [
      ["layer", "word", ...columns],
      ...this.tables[0][1].flatMap((table, l) =>
        rows.map((token, i) => [this.names[l], token, ...table[i]]),
      ),
    ];
  }
}
