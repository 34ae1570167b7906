// The page around the views: header, tabs, language, theme, and what is shown if nothing loads.

import * as service from "./api.js";
import { h, replace, roving } from "./dom.js";
import { language, LANGUAGES, setLanguage, t } from "./i18n.js";
import * as state from "./state.js";
import { errorBox } from "./widgets.js";
import * as anatomy from "./views/anatomy.js";
import * as languageModel from "./views/language.js";
import * as pair from "./views/pair.js";
import * as search from "./views/search.js";
import * as tasks from "./views/tasks.js";
import * as uses from "./views/uses.js";

const ALL_VIEWS = { uses, pair, language: languageModel, anatomy, tasks, search };
const VIEWS = Object.fromEntries(
  Object.entries(ALL_VIEWS).filter(([name]) => !service.MISSING_VIEWS.includes(name)),
);
const REMEMBERED = 30; // answers
const root = document.getElementById("app");

// ---------------------------------------------------------------------- data
/** Functions of the service that give an answer again without asking for it again. */
function remembering(functions) {
  const answers = new Map();
  const wrap =
    (name, ask) =>
    (...values) => {
      const key = JSON.stringify([name, ...values]);
      if (!answers.has(key)) {
        if (answers.size >= REMEMBERED) answers.delete(answers.keys().next().value);
        const answer = ask(...values);
        answers.set(key, answer);
        answer.catch(() => answers.delete(key));
      }
      return answers.get(key);
    };
  const entries = Object.entries(functions).filter(([, value]) => typeof value === "function");
  return Object.fromEntries(entries.map(([name, ask]) => [name, wrap(name, ask)]));
}

const { layers, uses: askUses, surprisal, fill, predict, neighbours } = service;
const api = remembering({ layers, uses: askUses, surprisal, fill, predict, neighbours });
let loaded = null;

function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** The model of the address, else the first one; not if only another knows the page's language. */
function currentModel() {
  const models = loaded.data;
  const chosen = models.find(({ id }) => id === state.get("model"));
  const knows = ({ languages }) => languages.includes(language());
  const isForeign = models[0].languages.length > 0 && !knows(models[0]);
  return chosen ?? (isForeign ? models.find(knows) : undefined) ?? models[0];
}

function context() {
  const model = currentModel();
  const textLanguage =
    model.languages.includes("zh") && !model.languages.includes("en") ? "zh" : "en";
  return {
    api,
    about: loaded,
    model,
    language: language(),
    textLanguage,
    announce,
    get: state.get,
    set: state.set,
  };
}

// ---------------------------------------------------------------------- language and theme
function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Without storage the choice holds for this page only.
  }
}

function chooseLanguage() {
  const fromBrowser = navigator.languages
    .find((tag) => /^(en|zh)\b/i.test(tag))
    ?.slice(0, 2)
    .toLowerCase();
  const wanted = [state.get("lang"), kept("elmokit-language"), fromBrowser];
  setLanguage(wanted.find((one) => one in LANGUAGES) ?? "en");
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
  document.title = t("title");
}

const isDark = () => {
  const own = document.documentElement.dataset.theme;
  return own ? own === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

function chooseTheme() {
  const own = kept("elmokit-theme");
  if (own === "light" || own === "dark") document.documentElement.dataset.theme = own;
}

function themeButton() {
  const label = () => (isDark() ? t("light") : t("dark"));
  const button = h("button", { type: "button", class: "small", id: "theme" }, label());
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    keep("elmokit-theme", theme);
    button.textContent = label();
  });
  return button;
}

function languageButtons() {
  const buttons = Object.entries(LANGUAGES).map(([code, name]) =>
    h(
      "button",
      {
        type: "button",
        class: "small",
        lang: code === "zh" ? "zh-CN" : "en",
        "aria-pressed": code === language(),
        click: () => {
          keep("elmokit-language", code);
          state.set({ lang: code });
          chooseLanguage();
          showPage();
          document.querySelector(".languages [aria-pressed=true]")?.focus();
        },
      },
      name,
    ),
  );
  return h("div", { class: "languages", role: "group", "aria-label": t("language") }, buttons);
}

function linkButton() {
  const button = h("button", { type: "button", class: "small" }, t("copyLink"));
  button.addEventListener("click", async () => {
    let text = t("copied");
    try {
      await navigator.clipboard.writeText(location.href);
    } catch {
      text = t("copyYourself");
    }
    button.textContent = text;
    announce(text);
    setTimeout(() => (button.textContent = t("copyLink")), 2500);
  });
  return button;
}

// ---------------------------------------------------------------------- page
function modelChoice(current) {
  if (loaded.data.length < 2)
    return h("span", { class: "model" }, t("model"), " ", h("strong", null, current.id));
  const select = h(
    "select",
    {
      change: () => {
        state.set({ model: select.value });
        showPage();
        document.querySelector(".model select")?.focus();
      },
    },
    loaded.data.map(({ id }) => h("option", { value: id, selected: id === current.id }, id)),
  );
  return h("label", { class: "model" }, t("model"), " ", select);
}

function header(current) {
  return h(
    "header",
    null,
    h("div", { class: "brand" }, h("h1", null, "elmokit"), h("p", null, t("tagline"))),
    h(
      "div",
      { class: "switches" },
      current && modelChoice(current),
      linkButton(),
      themeButton(),
      languageButtons(),
    ),
  );
}

function tabs(panel) {
  const names = Object.keys(VIEWS);
  const shown = names.includes(state.currentView()) ? state.currentView() : "uses";
  const open = (i) => {
    if (names[i] !== state.currentView()) state.openView(names[i]);
    showView(panel);
    items.forEach((item, j) => {
      item.setAttribute("aria-selected", String(i === j));
      item.setAttribute("tabindex", i === j ? "0" : "-1");
    });
    panel.setAttribute("aria-labelledby", `tab-${names[i]}`);
  };
  const items = names.map((name) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-selected": name === shown,
        "aria-controls": "view",
      },
      t(`view.${name}`),
    ),
  );
  roving(items, { current: names.indexOf(shown), onselect: (i) => open(i) });
  panel.setAttribute("aria-labelledby", `tab-${shown}`);
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": t("views") }, items);
  return { list, reveal: () => reveal(list) };
}

/** On a narrow screen, scroll the tab that is shown into sight. */
function reveal(list) {
  const item = list.querySelector("[aria-selected=true]");
  list.scrollLeft = item.offsetLeft - list.offsetLeft - (list.clientWidth - item.offsetWidth) / 2;
}

function showView(panel) {
  const name = state.currentView() in VIEWS ? state.currentView() : "uses";
  const body = h("div", { class: `view view-${name}` });
  replace(
    panel,
    h(
      "div",
      { class: "intro" },
      h("h2", null, t(`view.${name}`)),
      h("p", null, t(`intro.${name}`)),
    ),
    body,
  );
  VIEWS[name].render(body, context());
}

function showPage() {
  const panel = h("div", { id: "view", role: "tabpanel", tabindex: "-1" });
  const views = tabs(panel);
  replace(
    root,
    h(
      "a",
      {
        class: "skip",
        href: "#view",
        click: (event) => {
          event.preventDefault();
          panel.focus();
        },
      },
      t("skip"),
    ),
    header(context().model),
    views.list,
    h("main", null, panel),
    h(
      "footer",
      null,
      h(
        "p",
        null,
        `elmokit ${loaded.version} · `,
        h("a", { href: service.MORE }, t("routes")),
        ` · ${t("nothingLeaves")}`,
      ),
      service.footnotes(context().model).map((key) => h("p", null, t(key))),
    ),
  );
  views.reveal();
  showView(panel);
}

function askForKey(error) {
  const input = h("input", { type: "password", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    service.setKey(input.value);
    start();
  };
  return h(
    "form",
    { class: "panel key", submit },
    h("label", null, h("span", null, t("keyNeeded")), input),
    error.given && h("p", { class: "hint", role: "alert" }, t("keyWrong")),
    h("button", { type: "submit", class: "primary" }, t("continue")),
  );
}

let tried = false;

async function start() {
  try {
    loaded = await service.about();
    showPage();
  } catch (error) {
    const box = error.kind === "key" ? askForKey({ given: tried }) : errorBox(error, start);
    tried = true;
    replace(root, header(null), h("main", null, box));
    if (!error.kind) throw error;
  }
}

addEventListener("popstate", () => {
  state.readAddress();
  if (loaded === null) return;
  chooseLanguage();
  showPage();
});
state.readAddress();
chooseTheme();
chooseLanguage();
start();
