"""The tokenizer's regular expression in JavaScript.

It is translated from what Python's parser makes of it, so that the two cannot drift apart. In
Python `\\w`, `\\d` and `\\s` are Unicode's, in JavaScript others; `(?i:…)` is too new for browsers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from elmokit.errors import ElmokitError

PARSER: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
IGNORE_CASE = 2  # re.IGNORECASE
SPACE = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
CATEGORIES = {  # what a class contains
    "CATEGORY_WORD": r"\p{L}\p{N}_",
    "CATEGORY_DIGIT": r"\p{Nd}",
    "CATEGORY_SPACE": SPACE,
}
MAX_REPEAT = 4_294_967_295  # Python's number for "any number of times"


def translate(pattern: str) -> str:
    """Return a pattern for `new RegExp(pattern, "u")` that matches the same strings.

    >>> translate(r"(?i:a)[^\\W_x]+\\.")
    '(?:[aA])(?:(?![_x])[\\\\p{L}\\\\p{N}_]){1,}\\\\u{2e}'
    """
    return _sequence(PARSER.parse(pattern), ignore_case=False)


def _sequence(items: Iterable[tuple[Any, Any]], *, ignore_case: bool) -> str:
    return "".join(_item(str(name), value, ignore_case) for name, value in items)


def _item(name: str, value: Any, ignore_case: bool) -> str:
    if name not in ITEMS:
        raise ElmokitError(f"the pattern of the tokenizer has {name}, which is not translated")
    return ITEMS[name](value, ignore_case)


def _character(code: int) -> str:
    is_plain = chr(code).isascii() and (chr(code).isalnum() or chr(code) in " _")
    return chr(code) if is_plain else f"\\u{{{code:x}}}"


def _literal(code: int, ignore_case: bool) -> str:
    letter = chr(code)
    if ignore_case and letter.lower() != letter.upper():
        return f"[{_character(ord(letter.lower()))}{_character(ord(letter.upper()))}]"
    return _character(code)


def _group(value: Any, ignore_case: bool) -> str:
    group, added, removed, items = value
    if removed or added & ~IGNORE_CASE:
        raise ElmokitError("the pattern of the tokenizer has flags that are not translated")
    inside = _sequence(items, ignore_case=ignore_case or bool(added))
    return f"({'' if group else '?:'}{inside})"


def _branch(value: Any, ignore_case: bool) -> str:
    return f"(?:{'|'.join(_sequence(items, ignore_case=ignore_case) for items in value[1])})"


def _repeat(value: Any, ignore_case: bool) -> str:
    low, high, items = value
    inside = _sequence(items, ignore_case=ignore_case)
    bound = "" if high == MAX_REPEAT else int(high)
    return f"(?:{inside}){{{low},{bound}}}" if len(items) > 1 else f"{inside}{{{low},{bound}}}"


def _look(negative: bool) -> Callable[[Any, bool], str]:
    def look(value: Any, ignore_case: bool) -> str:
        direction, items = value
        sign = ("<" if direction < 0 else "") + ("!" if negative else "=")
        return f"(?{sign}{_sequence(items, ignore_case=ignore_case)})"

    return look


def _class(items: list[tuple[Any, Any]], ignore_case: bool) -> str:
    """Return a class; `[^\\W…]` becomes a word character that is none of the others."""
    is_negated = str(items[0][0]) == "NEGATE"
    rest = [(str(name), value) for name, value in items[is_negated:]]
    categories = [str(value) for name, value in rest if name == "CATEGORY"]
    inverse = [name for name in categories if "NOT_" in name]
    others = "".join(CATEGORIES[name] for name in categories if name not in inverse)
    others += _members([item for item in rest if item[0] != "CATEGORY"], ignore_case)
    if not inverse:
        return f"[{'^' if is_negated else ''}{others}]"
    if len(inverse) > 1 or (others and not is_negated):
        raise ElmokitError("the pattern of the tokenizer has a class that is not translated")
    own = CATEGORIES[inverse[0].replace("NOT_", "")]
    if not others:
        return f"[{'' if is_negated else '^'}{own}]"
    return f"(?:(?![{others}])[{own}])"


def _members(items: list[tuple[str, Any]], ignore_case: bool) -> str:
    """Return characters and ranges of a class, with neighbours as one range."""
    ranges = [(value, value) if name == "LITERAL" else value for name, value in items]
    if ignore_case:
        letters = [pair for pair in ranges if chr(pair[0]).isalpha()]
        ranges += [tuple(ord(chr(code).swapcase()) for code in pair) for pair in letters]
    merged: list[list[int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return "".join(_character(a) + (f"-{_character(b)}" if a < b else "") for a, b in merged)


def _any(_value: Any, _ignore_case: bool) -> str:
    return r"[^\n]"


ITEMS: dict[str, Callable[[Any, bool], str]] = {
    "ANY": _any,
    "ASSERT": _look(negative=False),
    "ASSERT_NOT": _look(negative=True),
    "BRANCH": _branch,
    "FAILURE": lambda _value, _ignore_case: "(?!)",
    "IN": _class,
    "LITERAL": _literal,
    "MAX_REPEAT": _repeat,
    "NOT_LITERAL": lambda code, ignore_case: f"[^{_members([('LITERAL', code)], ignore_case)}]",
    "SUBPATTERN": _group,
}
