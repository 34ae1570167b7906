// A word in many contexts: a map of its uses for each layer, and one of a mix that sliders move.

import {
  bdi,
  fitted,
  h,
  joined,
  marked,
  number,
  onWidth,
  percent,
  replace,
  roving,
  s,
  textWidth,
} from "../dom.js";
import { WORDS } from "../examples.js";
import { figure } from "../figure.js";
import { t } from "../i18n.js";
import { mixedMap, nearest, products, shares } from "../mix.js";
import {
  choice,
  field,
  inlineSymbol,
  layerName,
  load,
  mixControls,
  readMix,
  symbol,
  Tooltip,
  writeMix,
} from "../widgets.js";

const NEIGHBOURS = 5;
const PANEL = 208; // preferred width of a map
const GAP = 16;
const TITLE = 44; // height of the title of a map, with one line below it
const LINE = 16; // a second line
const MIX_SCALE = 1.5; // the map of the mix is so much larger, at the same scale

/** Sentences and labels of a text: a line with # is the label of the lines after it. */
export function parse(text, word) {
  const sentences = [];
  const labels = [];
  let label = "";
  for (const line of text.split(/\r?\n/).map((one) => one.trim())) {
    if (line.startsWith("#")) label = line.slice(1).trim();
    else if (line) {
      sentences.push(unmarked(line, word));
      labels.push(label);
    }
  }
  return { sentences, labels: labels.some(Boolean) ? labels : null };
}

/** A line without the asterisks that mark the word in other tools. */
function unmarked(line, word) {
  return line.replace(/\*([^*\s][^*]*)\*/g, (whole, inner) =>
    inner.toLowerCase().startsWith(word.toLowerCase()) ? inner : whole,
  );
}

/** The example that fits the model and the language of the page. */
function firstExample(context) {
  const isChinese = context.model.languages.includes("zh") || context.language === "zh";
  return isChinese ? "苹果" : "bank";
}

function current(context) {
  const example = WORDS[context.get("example", firstExample(context))] ?? WORDS.bank;
  const isOwn = context.get("text") !== undefined;
  return {
    word: context.get("word", isOwn ? "" : example.word),
    text: context.get("text", example.text),
    inflected: context.get("forms", "0") === "1",
  };
}

export function render(root, context) {
  const now = current(context);
  const word = h("input", {
    type: "text",
    value: now.word,
    required: true,
    autocomplete: "off",
    spellcheck: "false",
  });
  const text = h("textarea", { rows: 14, spellcheck: "false", required: true });
  text.value = now.text;
  const forms = h("input", { type: "checkbox", checked: now.inflected });
  const result = h("div", { class: "result" });
  const submit = (event) => {
    event?.preventDefault();
    const example = Object.keys(WORDS).find(
      (name) => WORDS[name].text === text.value && WORDS[name].word === word.value.trim(),
    );
    context.set({
      example,
      word: example ? undefined : word.value.trim(),
      text: example ? undefined : text.value,
      forms: forms.checked ? "1" : undefined,
      use: undefined,
    });
    draw(result, context);
  };
  const examples = Object.entries(WORDS).map(([name, example]) =>
    h(
      "button",
      {
        type: "button",
        class: "small",
        lang: example.language,
        click: () => {
          word.value = example.word;
          text.value = example.text;
          submit();
        },
      },
      name,
    ),
  );
  const form = h(
    "form",
    { class: "panel", submit },
    field(t("word"), word),
    field(t("sentences"), text, t("sentencesHint")),
    h("label", { class: "check" }, forms, h("span", null, t("forms"))),
    h("button", { type: "submit", class: "primary" }, t("drawMap")),
    h("div", { class: "examples" }, h("span", null, t("examples")), examples),
  );
  replace(root, h("div", { class: "columns" }, form, result));
  draw(result, context);
}

function draw(target, context) {
  const { word, text, inflected } = current(context);
  const { sentences, labels } = parse(text, word);
  if (!word || sentences.length === 0) {
    replace(target, h("p", { class: "empty" }, t("needWord")));
    return;
  }
  const question = { word, sentences, inflected };
  if (labels) question.labels = labels;
  load(
    target,
    () => context.api.uses(context.model.id, question),
    (answer) => new UsesView(target, context, { ...answer, word }, sentences),
  );
}

class UsesView {
  constructor(target, context, answer, sentences) {
    this.context = context;
    this.answer = answer;
    this.sentences = sentences;
    this.uses = answer.uses;
    this.maps = answer.layers.filter((map) => map.name !== "average");
    this.average = answer.layers.find((map) => map.name === "average");
    this.table = products(this.maps.map((map) => map.vectors));
    this.hasLabels = this.uses.some((use) => use.label);
    this.by = this.hasLabels && context.get("color", "labels") === "labels" ? "labels" : "clusters";
    this.layer = context.get("layer", `layer ${this.maps.length - 1}`);
    this.selected = Math.min(
      Math.max(0, Number(context.get("use", "0")) || 0),
      this.uses.length - 1,
    );
    this.tooltip = new Tooltip();
    this.range =
      1.12 * Math.max(0.2, ...this.maps.flatMap((map) => map.points.flat().map(Math.abs)));
    this.marks = []; // elements of each use, in all maps
    this.build(target);
  }

  // ------------------------------------------------------------------ groups
  group(use) {
    if (this.by === "clusters") return use.cluster;
    return this.labels().indexOf(use.label || "");
  }

  labels() {
    return [...new Set(this.uses.map((use) => use.label || ""))];
  }

  groups() {
    if (this.by === "labels") return this.labels().map((label) => label || t("noLabel"));
    return Array.from({ length: this.answer.clusters }, (_, i) => t("cluster", { n: i + 1 }));
  }

  groupName(use) {
    return this.groups()[this.group(use)];
  }

  // ------------------------------------------------------------------ page
  build(target) {
    const notes = this.notes();
    this.mapsBox = h("div", { class: "drawing" });
    this.mixBox = h("div", { class: "drawing" });
    this.details = h("div", { class: "panel selected" });
    this.list = h("ol", { class: "uses" });
    const names = this.maps.map((map) => layerName(map.name));
    this.mix = readMix(this.context, names.length);
    this.weights = shares(this.mix.amounts);
    const controls = mixControls(names, this.mix, (values) => {
      this.weights = values.weights;
      this.mix = { amounts: values.values, gamma: values.gamma };
      writeMix(this.context, values);
      this.moveMix();
    });
    const colors = this.hasLabels
      ? choice(
          t("colorBy"),
          "color",
          [
            ["labels", t("ownLabels")],
            ["clusters", t("clustersFound")],
          ],
          this.by,
          (value) => {
            this.by = value;
            this.context.set({ color: value === "labels" ? undefined : value });
            this.redraw();
          },
        )
      : null;
    const word = this.answer.word;
    replace(
      target,
      notes,
      figure({
        title: t("mapsTitle", { word }),
        note: t("mapsNote"),
        name: `elmokit-${word}-layers`,
        content: this.mapsBox,
        rows: () => this.mapRows(),
        controls: colors,
      }),
      h(
        "div",
        { class: "pair" },
        figure({
          title: t("mixTitle"),
          note: t("mixNote"),
          name: `elmokit-${word}-mix`,
          content: h("div", { class: "mixed" }, h("div", null, this.mixBox, controls)),
          rows: () => this.mixRows(),
        }),
        this.details,
      ),
      h("section", null, h("h3", null, t("usesTitle", { count: this.uses.length })), this.list),
      this.tooltip.element,
    );
    onWidth(this.mapsBox, (width) => {
      this.width = width;
      this.redraw();
    });
  }

  notes() {
    const notes = [];
    const { languages } = this.context.model;
    const isChinese = /[\u4e00-\u9fff]/.test(this.answer.word);
    if (isChinese && languages.length && !languages.includes("zh")) notes.push(t("notChinese"));
    if (this.answer.missing.length) {
      notes.push(t("missing", { count: this.answer.missing.length, word: this.answer.word }));
    }
    return notes.map((note) => h("p", { class: "notice" }, note));
  }

  redraw() {
    this.marks = this.uses.map(() => []);
    this.drawMaps();
    this.drawMix();
    this.drawList();
    this.highlight(this.selected);
    this.drawDetails();
  }

  // ------------------------------------------------------------------ maps
  drawMaps() {
    const width = this.width;
    const count = this.maps.length + 1;
    let columns = Math.max(1, Math.min(count, Math.floor((width + GAP) / (PANEL * 0.66 + GAP))));
    columns = Math.ceil(count / Math.ceil(count / columns)); // rows of about the same length
    this.side = Math.min(280, Math.floor((width - GAP * (columns - 1)) / columns));
    const legend = this.legend(width);
    const rows = Math.ceil(count / columns);
    this.title = TITLE + (this.by === "labels" ? LINE : 0);
    const height = legend.height + rows * (this.side + this.title) + (rows - 1) * GAP + 2;
    const panels = [null, ...this.maps].map((map, i) => {
      const x = (i % columns) * (this.side + GAP);
      const y = legend.height + Math.floor(i / columns) * (this.side + this.title + GAP);
      const content = map ? this.layerPanel(map) : this.staticPanel();
      return s("g", { transform: `translate(${x} ${y})` }, content);
    });
    replace(
      this.mapsBox,
      s(
        "svg",
        {
          viewBox: `0 0 ${width} ${height}`,
          width,
          height,
          role: "group",
          "aria-label": t("mapsTitle", { word: this.answer.word }),
        },
        legend.element,
        panels,
      ),
    );
  }

  legend(width) {
    let [x, y] = [0, 12];
    const items = this.groups().map((name, i) => {
      const text = fitted(name, Math.min(220, width - 40), 13);
      const size = textWidth(text, 13) + 38;
      if (x > 0 && x + size > width) [x, y] = [0, y + 24];
      const item = s(
        "g",
        { transform: `translate(${x + 8} ${y})` },
        symbol(i),
        s("text", { x: 14, y: 4.5, class: "legend" }, text),
      );
      x += size;
      return item;
    });
    return { element: s("g", { "aria-hidden": "true" }, items), height: y + 22 };
  }

  frame(side, title, notes, top) {
    return s(
      "g",
      { "aria-hidden": "true" },
      s("text", { class: "panel-title", y: 14 }, title),
      notes.map((note, i) =>
        s("text", { class: "panel-note", y: 32 + i * LINE }, fitted(note, side, 12)),
      ),
      s(
        "g",
        { transform: `translate(0 ${top})` },
        s("rect", { class: "frame", x: 0.5, y: 0.5, width: side - 1, height: side - 1, rx: 4 }),
        s("path", { class: "axis", d: `M${side / 2} 1V${side - 1}M1 ${side / 2}H${side - 1}` }),
      ),
    );
  }

  place([x, y], side, range) {
    const half = side / 2;
    return `translate(${(half + (half * x) / range).toFixed(2)} ${(half - (half * y) / range).toFixed(2)})`;
  }

  staticPanel() {
    const points = this.answer.static.map((form, i) => {
      const isAlone = this.answer.static.length === 1;
      const name = isAlone ? t("staticAll", { count: form.uses }) : `${form.word} · ${form.uses}`;
      return s(
        "g",
        { transform: this.place(form.point, this.side, this.range) },
        s("circle", { class: "static", r: 7 }),
        s(
          "text",
          { class: "panel-note middle", y: i % 2 ? -14 : 24 },
          fitted(name, this.side - 20, 12),
        ),
      );
    });
    return [
      this.frame(this.side, t("staticTitle"), [t("staticNote")], this.title),
      s(
        "g",
        {
          transform: `translate(0 ${this.title})`,
          role: "img",
          "aria-label": t("staticLabel", { word: this.answer.word }),
        },
        points,
      ),
    ];
  }

  notesOf(map) {
    if (map.one_point) return [t("onePoint")];
    const parts = [t("variance", { share: percent(map.variance[0] + map.variance[1]) })];
    if (this.by === "labels" && map.purity !== null)
      parts.push(t("purity", { share: percent(map.purity) }));
    return parts;
  }

  layerPanel(map) {
    return [
      this.frame(this.side, layerName(map.name), this.notesOf(map), this.title),
      this.points(map.points, map.name, this.side, this.range, this.title),
    ];
  }

  points(points, name, side, range, top) {
    const items = points.map((point, i) => {
      const use = this.uses[i];
      const label = `${joined(use.tokens)} (${this.groupName(use)})`;
      const item = s(
        "g",
        {
          class: "point",
          role: "option",
          "aria-selected": i === this.selected && name === this.layer,
          "aria-label": label,
          transform: this.place(point, side, range),
          pointerenter: () => this.preview(i, item),
          pointerleave: () => this.endPreview(),
          blur: () => this.endPreview(),
        },
        s("circle", { class: "target", r: 11 }),
        s("circle", { class: "ring", r: 10 }),
        symbol(this.group(use)),
      );
      this.marks[i].push({ item, name });
      return item;
    });
    roving(items, {
      current: this.selected,
      onfocus: (i) => this.preview(i, items[i]),
      onselect: (i) => this.select(i, name),
    });
    return s(
      "g",
      {
        transform: `translate(0 ${top})`,
        role: "listbox",
        "aria-label": t("mapLabel", { layer: layerName(name), count: points.length }),
        keydown: (event) => event.key === "Escape" && this.tooltip.hide(),
      },
      items,
    );
  }

  // ------------------------------------------------------------------ mix
  drawMix() {
    const side = Math.min(Math.round(this.side * MIX_SCALE), 420, this.width);
    const range = (this.range * side) / this.side;
    this.mixPlace = (point) =>
      this.place(
        point.map((x) => x * this.mix.gamma),
        side,
        range,
      );
    this.mixed = mixedMap(this.table, this.weights, this.average.points);
    this.mixTitleText = s("text", { class: "panel-note", y: 32 });
    const frame = this.frame(side, "ELMo = γ Σ sⱼ hⱼ", [], TITLE);
    frame.append(this.mixTitleText);
    const points = this.points(this.mixed.points, "mix", side, range, TITLE);
    replace(
      this.mixBox,
      s(
        "svg",
        {
          viewBox: `0 0 ${side} ${side + TITLE}`,
          width: side,
          height: side + TITLE,
          role: "group",
          "aria-label": t("mixTitle"),
        },
        frame,
        points,
      ),
    );
    this.moveMix();
  }

  moveMix() {
    this.mixed = mixedMap(this.table, this.weights, this.average.points);
    this.mixed.points.forEach((point, i) => {
      const mark = this.marks[i].find(({ name }) => name === "mix");
      mark.item.setAttribute("transform", this.mixPlace(point));
    });
    const { onePoint, variance } = this.mixed;
    this.mixTitleText.textContent = onePoint
      ? t("onePoint")
      : t("variance", { share: percent(variance[0] + variance[1]) });
    if (this.layer === "mix") this.drawDetails();
  }

  // ------------------------------------------------------------------ selection
  preview(i, element) {
    const use = this.uses[i];
    this.highlight(i);
    this.tooltip.show(
      element,
      h("div", { class: "tag" }, inlineSymbol(this.group(use)), bdi(this.groupName(use))),
      marked(use),
    );
  }

  endPreview() {
    this.tooltip.hide();
    this.highlight(this.selected);
  }

  highlight(i) {
    this.marks.forEach((marks, j) => {
      for (const { item, name } of marks) {
        item.classList.toggle("active", i === j);
        item.setAttribute("aria-selected", String(j === this.selected && name === this.layer));
      }
    });
    [...this.list.children].forEach((entry, j) => entry.classList.toggle("active", i === j));
  }

  select(i, layer) {
    this.selected = i;
    this.layer = layer;
    this.context.set({ use: i, layer });
    this.highlight(i);
    this.drawDetails();
    this.context.announce(t("selected", { sentence: joined(this.uses[i].tokens) }));
  }

  neighbours() {
    if (this.layer === "mix") return nearest(this.mixed.cosines, this.selected, NEIGHBOURS);
    const map = this.maps.find(({ name }) => name === this.layer) ?? this.maps.at(-1);
    return map.neighbours[this.selected];
  }

  drawDetails() {
    const use = this.uses[this.selected];
    const layers = [...this.maps.map((map) => [map.name, layerName(map.name)]), ["mix", t("mix")]];
    const near = this.neighbours();
    const entries = near.map(({ use: i, cosine }) =>
      h(
        "li",
        null,
        inlineSymbol(this.group(this.uses[i])),
        h(
          "button",
          {
            type: "button",
            class: "plain",
            click: () => this.select(i, this.layer),
            pointerenter: () => this.highlight(i),
            pointerleave: () => this.highlight(this.selected),
          },
          marked(this.uses[i]),
        ),
        h("span", { class: "score" }, number(cosine)),
      ),
    );
    const same = near.filter(({ use: i }) => this.group(this.uses[i]) === this.group(use)).length;
    const chosen = layers.some(([name]) => name === this.layer) ? this.layer : layers.at(-2)[0];
    replace(
      this.details,
      h("h3", null, t("selectedTitle")),
      h("p", { class: "quote" }, inlineSymbol(this.group(use)), marked(use)),
      choice(t("nearestTitle"), "layer", layers, chosen, (value) => {
        this.select(this.selected, value);
        this.details.querySelector("input:checked")?.focus();
      }),
      h("ol", { class: "near" }, entries),
      near.length > 0 && h("p", { class: "note" }, t("nearestNote", { same, count: near.length })),
    );
  }

  drawList() {
    replace(
      this.list,
      this.uses.map((use, i) =>
        h(
          "li",
          {
            pointerenter: () => this.highlight(i),
            pointerleave: () => this.highlight(this.selected),
          },
          inlineSymbol(this.group(use)),
          marked(use),
        ),
      ),
      this.answer.missing.map((row) =>
        h("li", { class: "missing" }, h("span", { class: "dash" }, "–"), bdi(this.sentences[row])),
      ),
    );
  }

  // ------------------------------------------------------------------ data
  facts(use) {
    return [joined(use.tokens), use.word, use.label ?? "", use.cluster + 1];
  }

  mapRows() {
    const header = ["layer", "x", "y", "sentence", "word", "label", "cluster"];
    return [
      header,
      ...this.maps.flatMap((map) =>
        this.uses.map((use, i) => [map.name, ...map.points[i], ...this.facts(use)]),
      ),
    ];
  }

  mixRows() {
    const { gamma } = this.mix;
    const header = [
      ...this.weights.map((_, i) => `s${i}`),
      "gamma",
      "x",
      "y",
      "sentence",
      "word",
      "label",
      "cluster",
    ];
    return [
      header,
      ...this.uses.map((use, i) => [
        ...this.weights,
        gamma,
        ...this.mixed.points[i].map((value) => value * gamma),
        ...this.facts(use),
      ]),
    ];
  }
}
