"""The settings of a run, dataclasses: which values are valid, and which must not change."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
MAX_SEED = (1 << 63) - 1  # of torch


def check_settings(
    settings: DataclassInstance,
    minimum: Mapping[str, float],
    *,
    positive: Collection[str] = (),
    fractions: Collection[str] = (),
) -> None:
    """Raise if a field has a value of another type than its own, or one that is out of range.

    Fields in `positive` must be above 0, those in `fractions` at least 0 and below 1.
    """
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if not _fits(value, hint):
            first = get_args(hint)[0] if get_origin(hint) in (Union, UnionType) else hint
            rule = KINDS[first] if first in KINDS else f"one of {', '.join(get_args(first))}"
        elif value is None:
            continue
        elif isinstance(value, float) and not math.isfinite(value):
            rule = "finite"
        elif name in positive and value <= 0:
            rule = "above 0"
        elif name in fractions and not 0 <= value < 1:
            rule = "at least 0 and below 1"
        elif name in minimum and value < minimum[name]:
            rule = f"at least {minimum[name]}"
        elif name == "seed" and value > MAX_SEED:
            rule = f"at most {MAX_SEED}"
        else:
            continue
        raise ElmokitError(f"{name} must be {rule}, not {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is of a type; collections are checked where they are read."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, arm) for arm in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint not in KINDS:
        return value is None or hint is not type(None)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else hint)


def find_change(
    old: Mapping[str, Any], settings: DataclassInstance, *, ignore: Collection[str] = ()
) -> str | None:
    """Describe the first setting that differs from a saved run; return None if there is none."""
    for field in fields(settings):
        before, now = old.get(field.name, field.default), getattr(settings, field.name)
        if field.name not in ignore and before != now:
            return f"{field.name} was {before!r:.200} and is now {now!r:.200}"
    return None
