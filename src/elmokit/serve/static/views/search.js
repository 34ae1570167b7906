// Search: uses in an index that are like a marked word in its sentence.

import { bdi, h, marked, number, joined, replace } from "../dom.js";
import { TEXTS } from "../examples.js";
import { figure } from "../figure.js";
import { t } from "../i18n.js";
import { field, load } from "../widgets.js";
import { emptyView } from "./tasks.js";

export function render(root, context) {
  const { index } = context.about;
  if (!index) {
    replace(
      root,
      emptyView(
        t("noIndex"),
        "elmokit neighbours index text.txt FOLDER\nelmokit serve --index FOLDER",
      ),
    );
    return;
  }
  const example = TEXTS[context.textLanguage].query;
  const query = h("input", { type: "text", required: true, value: context.get("query", example) });
  const count = h("input", {
    type: "number",
    min: 1,
    max: 100,
    value: context.get("k", "20"),
    required: true,
  });
  const options = [
    ["", t("allWords")],
    ["same-word", t("sameWord")],
    ["other-words", t("otherWords")],
  ];
  const only = h(
    "select",
    null,
    options.map(([value, label]) =>
      h("option", { value, selected: value === context.get("only", "") }, label),
    ),
  );
  const result = h("div", { class: "result" });
  const draw = () =>
    load(
      result,
      () => context.api.neighbours(query.value, Number(count.value), only.value || undefined),
      (answer) => replace(result, show(answer)),
    );
  const submit = (event) => {
    event.preventDefault();
    context.set({
      query: query.value === example ? undefined : query.value,
      k: count.value === "20" ? undefined : count.value,
      only: only.value || undefined,
    });
    draw();
  };
  replace(
    root,
    h(
      "form",
      { class: "panel wide", submit },
      field(t("query"), query, t("queryHint")),
      h("div", { class: "inline-fields" }, field(t("onlyLabel"), only), field(t("count"), count)),
      h("button", { type: "submit", class: "primary" }, t("search")),
      h(
        "p",
        { class: "note" },
        t("indexNote", {
          uses: index.uses.toLocaleString(),
          sentences: index.sentences.toLocaleString(),
        }),
      ),
    ),
    result,
  );
  draw();
}

function show({ query, neighbours, static: words }) {
  const list = h(
    "ol",
    { class: "hits" },
    neighbours.map((use) => {
      const meter = h("span", { class: "meter" }, h("i"));
      meter.style.setProperty("--share", String(Math.max(0, use.score).toFixed(3)));
      return h("li", null, h("span", { class: "score" }, number(use.score)), meter, marked(use));
    }),
  );
  const content = h(
    "div",
    null,
    neighbours.length ? list : h("p", { class: "empty" }, t("noHits")),
  );
  return [
    figure({
      title: t("hitsTitle", { word: query.word }),
      note: t("hitsNote"),
      name: `elmokit-search-${query.word}`,
      content,
      rows: () => [
        ["score", "word", "sentence"],
        ...neighbours.map((use) => [use.score, use.word, joined(use.tokens)]),
      ],
    }),
    words.length > 0 &&
      h(
        "section",
        { class: "panel" },
        h("h3", null, t("staticNear")),
        h("p", { class: "note" }, t("staticNearNote")),
        h(
          "ul",
          { class: "chips" },
          words.map(({ word, score }) =>
            h("li", null, bdi(word), " ", h("span", { class: "score" }, number(score))),
          ),
        ),
      ),
  ].filter(Boolean);
}
