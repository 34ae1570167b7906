"""What must not change when a run resumes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def find_change(
    old: Mapping[str, Any], settings: DataclassInstance, *, ignore: Collection[str] = ()
) -> str | None:
    """Describe the first setting that differs from a saved run; return None if there is none.

    Args:
        old: Settings of the saved run; one that is missing there had its default value.
        settings: Settings of this run, a dataclass.
        ignore: Fields that may change.
    """
    for field in fields(settings):
        before, now = old.get(field.name, field.default), getattr(settings, field.name)
        if field.name not in ignore and before != now:
            return f"{field.name} was {before!r} and is now {now!r}"
    return None
