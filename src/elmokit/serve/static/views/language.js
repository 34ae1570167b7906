// Language model: how unexpected each word is, read forwards and backwards, and what else would fit.

import { bars } from "../bars.js";
import { fitted, h, joined, number, onWidth, replace, roving, s, textWidth } from "../dom.js";
import { TEXTS } from "../examples.js";
import { figure } from "../figure.js";
import { t } from "../i18n.js";
import { field, load } from "../widgets.js";

const PLOT = 120; // height of a curve
const WORDS = 30;
const LINE = PLOT + WORDS + 30;
const GUTTER = 34;
const PAD = 16; // between two words
const FILLINGS = 10;

export function render(root, context) {
  if (!context.model.predicts_words) {
    replace(root, h("p", { class: "empty" }, t("noSoftmax")));
    return;
  }
  const example = TEXTS[context.textLanguage].text;
  const text = h("textarea", { rows: 3, required: true });
  text.value = context.get("text", example);
  const result = h("div", { class: "result" });
  const draw = () =>
    load(
      result,
      () => context.api.surprisal(context.model.id, [text.value.replace(/\s+/g, " ")]),
      (answer) => {
        if (answer.sentences[0].tokens.length === 0) {
          replace(result, h("p", { class: "empty" }, t("needText")));
        } else new LanguageView(result, context, answer.sentences[0]);
      },
    );
  const submit = (event) => {
    event.preventDefault();
    context.set({ text: text.value === example ? undefined : text.value, word: undefined });
    draw();
  };
  replace(
    root,
    h(
      "form",
      { class: "panel wide", submit },
      field(t("text"), text),
      h("button", { type: "submit", class: "primary" }, t("score")),
    ),
    result,
  );
  draw();
}

class LanguageView {
  constructor(target, context, sentence) {
    this.context = context;
    this.sentence = sentence;
    const { forward, backward, tokens } = sentence;
    this.most = Math.max(8, 4 * Math.ceil(Math.max(...forward, ...backward) / 4));
    const given = Number(context.get("word", "NaN"));
    const totals = tokens.map((_, i) => forward[i] + backward[i]);
    this.selected =
      given >= 0 && given < tokens.length ? given : totals.indexOf(Math.max(...totals));
    this.build(target);
  }

  build(target) {
    const title = t("surprisalTitle");
    this.box = h("div", { class: "drawing" });
    this.fillBox = h("div", { class: "result" });
    const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const { forward, backward } = this.sentence;
    const note = t("surprisalNote", {
      forward: number(mean(forward), 1),
      backward: number(mean(backward), 1),
    });
    replace(
      target,
      figure({
        title,
        note,
        name: "elmokit-surprisal",
        content: this.box,
        rows: () => this.rows(),
      }),
      this.fillBox,
    );
    onWidth(this.box, (width) => {
      this.width = width;
      this.draw();
    });
    this.fill();
  }

  /** Words in lines: [{ i, x, width }] each. */
  lines() {
    const lines = [[]];
    let x = GUTTER;
    this.sentence.tokens.forEach((token, i) => {
      const width = Math.max(26, Math.min(textWidth(token, 14), 160)) + PAD;
      if (x + width > this.width && lines.at(-1).length) {
        lines.push([]);
        x = GUTTER;
      }
      lines.at(-1).push({ i, width });
      x += width;
    });
    // Lines are as wide as the figure; the last one may end earlier.
    lines.forEach((line, k) => {
      const own = line.reduce((sum, { width }) => sum + width, 0);
      const stretch = Math.min((this.width - GUTTER) / own, k < lines.length - 1 ? 2 : 1.5);
      let x = GUTTER;
      for (const word of line) {
        word.width *= stretch;
        word.x = x + word.width / 2;
        x += word.width;
      }
    });
    return lines;
  }

  draw() {
    const lines = this.lines();
    const top = 26;
    const height = top + lines.length * LINE;
    this.items = [];
    const label = t("surprisalLabel", { count: this.sentence.tokens.length });
    const list = s("g", { role: "listbox", "aria-label": t("wordsOfText") });
    const plots = lines.map((line, row) => this.drawLine(line, top + row * LINE, list));
    replace(
      this.box,
      s(
        "svg",
        {
          viewBox: `0 0 ${this.width} ${height}`,
          width: this.width,
          height,
          role: "group",
          "aria-label": label,
        },
        this.legend(),
        list,
        plots,
      ),
    );
    roving(this.items, { current: this.selected, onselect: (i) => this.select(i) });
    this.mark();
  }

  legend() {
    const entry = (x, name, label) =>
      s(
        "g",
        { transform: `translate(${x} 10)` },
        s("path", { class: `curve ${name}`, d: "M0 0H28" }),
        this.dot(name, 14, 0, true),
        s("text", { class: "legend", x: 36, y: 4.5 }, label),
      );
    return s(
      "g",
      { "aria-hidden": "true" },
      entry(0, "forward", t("forwards")),
      entry(60 + textWidth(t("forwards"), 13), "backward", t("backwards")),
    );
  }

  dot(name, x, y, isKnown) {
    const className = `dot ${name} ${isKnown ? "" : "unknown"}`;
    if (name === "forward") return s("circle", { class: className, cx: x, cy: y, r: 3.5 });
    return s("rect", { class: className, x: x - 3.2, y: y - 3.2, width: 6.4, height: 6.4 });
  }

  drawLine(line, y, list) {
    const { tokens, forward, backward, known } = this.sentence;
    const base = y + WORDS + PLOT;
    const height = (bits) => base - (PLOT * bits) / this.most;
    const right = line.at(-1).x + line.at(-1).width / 2;
    const step = this.most > 16 ? 8 : 4;
    const grid = Array.from({ length: this.most / step + 1 }, (_, k) => k * step)
      .filter((bits) => bits <= this.most)
      .map((bits) => [
        s("path", { class: "grid", d: `M${GUTTER} ${height(bits)}H${right}` }),
        s("text", { class: "tick", x: GUTTER - 6, y: height(bits) + 4 }, String(bits)),
      ]);
    for (const { i, x, width } of line) {
      const item = s(
        "g",
        {
          class: "token",
          role: "option",
          "aria-selected": i === this.selected,
          "aria-label": t("tokenLabel", {
            token: tokens[i],
            forward: number(forward[i], 1),
            backward: number(backward[i], 1),
          }),
        },
        s("rect", {
          class: "token-ground",
          x: x - width / 2 + 2,
          y: y + 2,
          width: width - 4,
          height: LINE - 10,
          rx: 5,
        }),
        s("text", { class: "token-text", x, y: y + 21 }, fitted(tokens[i], width - 6, 14)),
      );
      this.items.push(item);
      list.append(item);
    }
    const curve = (name, values) => [
      s("path", {
        class: `curve ${name}`,
        d: `M${line.map(({ i, x }) => `${x.toFixed(1)} ${height(values[i]).toFixed(1)}`).join("L")}`,
      }),
      line.map(({ i, x }) => this.dot(name, x, height(values[i]), known[i])),
    ];
    // Above the words' grounds, which take the clicks.
    return s(
      "g",
      { class: "plot", "aria-hidden": "true" },
      grid,
      curve("backward", backward),
      curve("forward", forward),
    );
  }

  mark() {
    this.items.forEach((item, i) => {
      item.classList.toggle("active", i === this.selected);
      item.setAttribute("aria-selected", String(i === this.selected));
    });
  }

  select(i) {
    this.selected = i;
    this.context.set({ word: i });
    this.mark();
    this.fill();
  }

  fill() {
    const { tokens } = this.sentence;
    const i = this.selected;
    load(
      this.fillBox,
      () => this.context.api.fill(this.context.model.id, tokens, i, FILLINGS),
      (answer) => this.drawFillings(i, answer.words),
    );
  }

  drawFillings(i, words) {
    const { tokens, known } = this.sentence;
    const gap = h(
      "bdi",
      { class: "sentence", dir: "auto" },
      `${joined(tokens.slice(0, i))} `,
      h("mark", null, "____"),
      ` ${joined(tokens.slice(i + 1))}`,
    );
    const names = words.map(({ word }) => word);
    const probabilities = words.map(({ probability }) => probability);
    const title = t("fillTitle", { word: tokens[i] });
    const content = bars(names, probabilities, {
      label: `${title}: ${names.join(", ")}`,
      chosen: (name) => name === tokens[i] || name === tokens[i].toLowerCase(),
      full: Math.max(...probabilities),
    });
    replace(
      this.fillBox,
      figure({
        title,
        note: [
          gap,
          known[i] ? null : h("span", { class: "block" }, t("unknownWord")),
          h("span", { class: "block" }, t("fillNote")),
        ].filter(Boolean),
        name: "elmokit-fill",
        content,
        rows: () => [
          ["word", "probability", "fit"],
          ...words.map(({ word, probability, fit }) => [word, probability, fit]),
        ],
      }),
    );
  }

  rows() {
    const { tokens, forward, backward, known } = this.sentence;
    return [
      ["token", "forward_bits", "backward_bits", "known"],
      ...tokens.map((token, i) => [token, forward[i], backward[i], known[i] ? "yes" : "no"]),
    ];
  }
}
