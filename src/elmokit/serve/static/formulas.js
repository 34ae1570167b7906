// The formulas of the parts of ELMo, as in Peters et al. (2018), in MathML.

import { m } from "./dom.js";

const mi = (text) => m("mi", text);
const mo = (text) => {
  const operator = m("mo", text);
  if ("()[]{}∣".includes(text)) operator.setAttribute("stretchy", "false");
  return operator;
};
const mn = (text) => m("mn", text);
const row = (...parts) => m("mrow", ...parts);
const sub = (base, ...index) => m("msub", base, row(...index));
const call = (name, ...parts) => row(mi(name), mo("("), ...parts, mo(")"));
const list = (...parts) => parts.flatMap((part, i) => (i ? [mo(","), part] : [part]));
const over = (symbol, arrow) => m("mover", mi(symbol), mo(arrow));
const hidden = (arrow, ...index) => sub(arrow ? over("h", arrow) : mi("h"), ...list(...index));
const sum = (from, to) => m("munderover", mo("∑"), from, to);

function display(...parts) {
  const math = m("math", row(...parts));
  math.setAttribute("display", "block");
  math.setAttribute("lang", "en"); // else the font of Chinese text is used for signs
  return math;
}

export const FORMULAS = {
  characters: () => [
    display(
      mi("C"),
      mo("="),
      mo("["),
      ...list(sub(mi("e"), sub(mi("c"), mn("1"))), mo("…"), sub(mi("e"), sub(mi("c"), mi("n")))),
      mo("]"),
      mo("∈"),
      m("msup", mi("ℝ"), row(mi("d"), mo("×"), mi("n"))),
    ),
  ],
  convolutions: () => [
    display(
      sub(mi("f"), mi("t")),
      mo("="),
      sum(row(mi("i"), mo("="), mn("0")), row(mi("w"), mo("−"), mn("1"))),
      sub(mi("W"), mi("i")),
      sub(mi("e"), sub(mi("c"), row(mi("t"), mo("+"), mi("i")))),
      mo("+"),
      mi("b"),
    ),
  ],
  maximum: ({ activation }) => [
    display(
      mi("u"),
      mo("="),
      call(activation, m("munder", mi("max"), mi("t")), sub(mi("f"), mi("t"))),
    ),
  ],
  highway: () => [
    display(mi("g"), mo("="), call("σ", mi("A"), mi("u"), mo("+"), mi("a"))),
    display(
      mi("u′"),
      mo("="),
      mi("g"),
      mo("⊙"),
      call("relu", mi("B"), mi("u"), mo("+"), mi("b")),
      mo("+"),
      mo("("),
      mn("1"),
      mo("−"),
      mi("g"),
      mo(")"),
      mo("⊙"),
      mi("u"),
    ),
  ],
  projection: () => [display(sub(mi("x"), mi("k")), mo("="), mi("P"), mi("u′"), mo("+"), mi("q"))],
  characterLstm: () => [
    display(
      mi("u"),
      mo("="),
      mo("["),
      ...list(sub(over("h", "→"), mi("n")), sub(over("h", "←"), mn("1"))),
      mo("]"),
    ),
  ],
  wordBeside: () => [
    display(mi("u′"), mo("←"), mo("["), ...list(sub(mi("w"), mi("k")), mi("u′")), mo("]")),
  ],
  words: () => [
    display(sub(mi("x"), mi("k")), mo("="), mi("E"), mo("["), sub(mi("t"), mi("k")), mo("]")),
  ],
  forward: () => [
    display(
      hidden("→", mi("k"), mi("j")),
      mo("="),
      call(
        "LSTM",
        ...list(
          hidden("→", mi("k"), row(mi("j"), mo("−"), mn("1"))),
          hidden("→", row(mi("k"), mo("−"), mn("1")), mi("j")),
        ),
      ),
    ),
    display(
      mi("p"),
      mo("("),
      sub(mi("t"), mi("k")),
      mo("∣"),
      ...list(sub(mi("t"), mn("1")), mo("…"), sub(mi("t"), row(mi("k"), mo("−"), mn("1")))),
      mo(")"),
    ),
  ],
  backward: () => [
    display(
      hidden("←", mi("k"), mi("j")),
      mo("="),
      call(
        "LSTM",
        ...list(
          hidden("←", mi("k"), row(mi("j"), mo("−"), mn("1"))),
          hidden("←", row(mi("k"), mo("+"), mn("1")), mi("j")),
        ),
      ),
    ),
    display(
      mi("p"),
      mo("("),
      sub(mi("t"), mi("k")),
      mo("∣"),
      ...list(sub(mi("t"), row(mi("k"), mo("+"), mn("1"))), mo("…"), sub(mi("t"), mi("N"))),
      mo(")"),
    ),
  ],
  skip: () => [
    display(
      hidden("→", mi("k"), mi("j")),
      mo("←"),
      hidden("→", mi("k"), mi("j")),
      mo("+"),
      hidden("→", mi("k"), row(mi("j"), mo("−"), mn("1"))),
    ),
  ],
  vectors: () => [
    display(
      sub(mi("R"), mi("k")),
      mo("="),
      mo("{"),
      ...list(sub(mi("x"), mi("k")), hidden("→", mi("k"), mi("j")), hidden("←", mi("k"), mi("j"))),
      mo("∣"),
      mi("j"),
      mo("="),
      ...list(mn("1"), mo("…"), mi("L")),
      mo("}"),
    ),
    display(
      mo("="),
      mo("{"),
      hidden(null, mi("k"), mi("j")),
      mo("∣"),
      mi("j"),
      mo("="),
      ...list(mn("0"), mo("…"), mi("L")),
      mo("}"),
    ),
  ],
  mix: () => [
    display(
      sub(mi("ELMo"), mi("k")),
      mo("="),
      mi("γ"),
      sum(row(mi("j"), mo("="), mn("0")), mi("L")),
      sub(mi("s"), mi("j")),
      hidden(null, mi("k"), mi("j")),
    ),
    display(mi("s"), mo("="), call("softmax", mi("w"))),
  ],
};
