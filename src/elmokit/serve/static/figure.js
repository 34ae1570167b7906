// A figure with all that belongs to it: its table, and buttons that save it as SVG, PNG or CSV.

import { h, replace, s } from "./dom.js";
import { t } from "./i18n.js";
import { drawText } from "./textfigure.js";

// What a saved figure needs of the style sheet, written into its elements. Children inherit all of
// these from their parents.
const KEPT = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray",
  "stroke-linecap", "stroke-linejoin", "font-family", "font-size", "font-weight",
  "font-style", "text-anchor", "letter-spacing",
]; // prettier-ignore
const PNG_SCALE = 2;
const MARGIN = 16; // around a saved figure
const MAX_COLUMNS = 12; // of a table on the page; the CSV file has all

/** A copy of a drawing that looks the same without the style sheet. */
function styled(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  const copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((original, i) => {
    const style = getComputedStyle(original);
    const outer = original === svg ? null : getComputedStyle(original.parentNode);
    const target = copies[i];
    if (style.display === "none" || style.visibility === "hidden") {
      target.setAttribute("display", "none");
    }
    for (const name of KEPT) {
      const value = style.getPropertyValue(name);
      if (value !== outer?.getPropertyValue(name)) target.setAttribute(name, value);
      else target.removeAttribute(name);
    }
    if (style.opacity !== "1") target.setAttribute("opacity", style.opacity);
    for (const name of [...target.getAttributeNames()]) {
      if (/^(aria-|role$|class$|tabindex$|data-)/.test(name)) target.removeAttribute(name);
    }
  });
  return copy;
}

/** The SVG file of what a figure shows, a drawing or a text: { text, width, height }. */
function standalone(content) {
  const ground = getComputedStyle(content.closest("figure")).backgroundColor;
  const drawing = content.querySelector("svg[viewBox]");
  const copy = drawing ? styled(drawing) : drawText(content, ground);
  const width = copy.viewBox.baseVal.width + 2 * MARGIN;
  const height = copy.viewBox.baseVal.height + 2 * MARGIN;
  copy.prepend(s("rect", { x: -MARGIN, y: -MARGIN, width, height, fill: ground, stroke: "none" }));
  copy.setAttribute("viewBox", `${-MARGIN} ${-MARGIN} ${width} ${height}`);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function save(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function toPng(content) {
  const { text, width, height } = standalone(content);
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = h("canvas", { width: width * PNG_SCALE, height: height * PNG_SCALE });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

function cell(value) {
  let text = String(value ?? "");
  // A spreadsheet would take these for formulas.
  if (typeof value === "string" && text.length > 1 && /^[=+@\t\r-]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows as the text of a CSV file; the mark at its beginning tells Excel that it is UTF-8. */
export function toCsv(rows) {
  return `\ufeff${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

function shown(value) {
  if (typeof value === "number" && !Number.isInteger(value)) return value.toFixed(3);
  return String(value ?? "");
}

/** A table whose first row is its header. */
export function table(rows, caption) {
  const [header, ...body] = rows;
  const cut = header.length > MAX_COLUMNS;
  const columns = (row) => (cut ? [...row.slice(0, MAX_COLUMNS), "…"] : row);
  const numeric = header.map((_, i) => body.every((row) => typeof row[i] === "number"));
  const kind = (i) => (numeric[i] ? "number" : undefined);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", { class: "visually-hidden" }, caption),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns(header).map((name, i) => h("th", { scope: "col", class: kind(i) }, name)),
        ),
      ),
      h(
        "tbody",
        null,
        body.map((row) =>
          h(
            "tr",
            null,
            columns(row).map((value, i) =>
              h("td", { class: kind(i) }, h("bdi", { dir: "auto" }, shown(value))),
            ),
          ),
        ),
      ),
    ),
  );
}

/**
 * A figure: an `svg` or a text. `rows()` returns its data, header first; `name` is that of saved
 * files.
 */
export function figure({ title, note, name, content, rows, controls, level = 3 }) {
  const button = (label, describe, action) =>
    h("button", { type: "button", class: "small", "aria-label": describe, click: action }, label);
  const saveSvg = () =>
    save(new Blob([standalone(content).text], { type: "image/svg+xml" }), `${name}.svg`);
  const savePng = async () => save(await toPng(content), `${name}.png`);
  const saveCsv = () => save(new Blob([toCsv(rows())], { type: "text/csv" }), `${name}.csv`);
  const data = h("div");
  const details = h(
    "details",
    {
      class: "data",
      toggle: () => (details.open ? replace(data, table(rows(), title)) : replace(data)),
    },
    h("summary", null, t("table")),
    data,
  );
  return h(
    "figure",
    { "aria-label": title },
    h(
      "figcaption",
      null,
      h("div", null, h(`h${level}`, null, title), note && h("p", { class: "note" }, note)),
      h(
        "div",
        { class: "tools", role: "group", "aria-label": t("save") },
        button("SVG", t("saveAs", { title, format: "SVG" }), saveSvg),
        button("PNG", t("saveAs", { title, format: "PNG" }), savePng),
        button("CSV", t("saveAs", { title, format: "CSV" }), saveCsv),
      ),
    ),
    controls,
    content,
    details,
  );
}
