"""What a comparison trains: one task under several conditions, in the tables of ELMo's paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from elmokit.errors import ElmokitError

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.tasks.settings import Settings

Value = TypeVar("Value")
WITHOUT, WITH = "without ELMo", "with ELMo"
OF_ELMO = "layers placement l2 elmo_dropout layer_norm tune_elmo elmo_lr target_elmo".split()
PENALTIES = (1.0, 0.001)  # l2 of a mix that hardly leaves the average, and of one that may


@dataclass(frozen=True)
class Condition:
    """One way to give a task model its vectors."""

    name: str
    """The same for the same model, whichever table asks for it."""
    settings: Settings
    with_elmo: bool


# The rows of a table by their labels; a condition may stand in several tables.
Rows: TypeAlias = "dict[str, Condition]"


def sections(what: Sequence[str], settings: Settings, top: int) -> dict[str, Rows]:
    """The tables that are asked for.

    Args:
        what: names of `SECTIONS`.
        settings: complete ones; what a table does not vary is as they say.
        top: number of the biLM's last layer.
    """
    if settings.layers.isdigit() and int(settings.layers) > top:
        raise ElmokitError(f"there is no layer {settings.layers}; it may be 0 to {top}")
    return {name: SECTIONS[name](settings, top) for name in what}


def elmo_rows(settings: Settings, top: int) -> Rows:
    """With and without."""
    return {WITHOUT: without_elmo(settings), WITH: with_elmo(settings, top)}


def layer_rows(settings: Settings, top: int) -> Rows:
    """Each layer alone, their fixed average, and mixes of all."""
    rows: Rows = {WITHOUT: without_elmo(settings)}
    for layer in range(top + 1):
        note = {0: " (tokens)", top: " (top)"}.get(layer, "")
        rows[f"layer {layer}{note}"] = with_elmo(settings, top, layers=str(layer))
    rows["average of all"] = with_elmo(settings, top, layers="average")
    for l2 in PENALTIES:
        rows[f"mix of all, λ = {l2:g}"] = with_elmo(settings, top, layers="all", l2=l2)
    return rows


def placement_rows(settings: Settings, top: int) -> Rows:
    """ELMo's vectors at the input of the task's RNN, at its output, and at both."""
    rows: Rows = {WITHOUT: without_elmo(settings)}
    for place in ("input", "output", "both"):
        rows[place] = with_elmo(settings, top, placement=place)
    return rows


SECTIONS: dict[str, Callable[[Settings, int], Rows]] = {
    "layers": layer_rows,
    "placement": placement_rows,
    "elmo": elmo_rows,
}


def without_elmo(settings: Settings) -> Condition:
    """The same model without ELMo; what concerns ELMo alone is as if nothing had been said."""
    return Condition("baseline", _forget(settings, OF_ELMO), False)


def with_elmo(settings: Settings, top: int, **changes: Any) -> Condition:
    """A model with ELMo; its name says what makes it another one."""
    own = replace(settings, **changes)
    if own.layers == str(top):
        own = replace(own, layers="top")
    if own.layers == "all":
        layers = f"all-l2-{own.l2:g}"
    else:
        layers = f"layer{own.layers}" if own.layers.isdigit() else own.layers
        own = _forget(own, ("l2",))  # there are no weights to pull
    return Condition(f"elmo-{own.placement}-{layers}", own, True)


def _forget(settings: Settings, names: Sequence[str]) -> Settings:
    own: dict[str, Any] = {f.name: f.default for f in fields(settings) if f.name in names}
    return replace(settings, **own)


# ---------------------------------------------------------------------- as users write it
def several(given: str | Sequence[Any], read: Callable[[str], Value]) -> list[Value]:
    """The values that stand between commas, or in a list, each once."""
    texts = given.split(",") if isinstance(given, str) else map(str, given)
    return list(dict.fromkeys(read(text.strip()) for text in texts))


def section_name(text: str) -> str:
    """What a table is about."""
    if text not in SECTIONS:
        raise ElmokitError(f"what is compared may be {', '.join(SECTIONS)}, not {text!r}")
    return text


def seed_number(text: str) -> int:
    """A seed."""
    if not (text.isascii() and text.isdigit()):
        raise ElmokitError(f"seeds must be whole numbers with commas between, not {text!r}")
    return int(text)


def per_cent_of_data(text: str) -> float:
    """A size of the training data."""
    try:
        percent = float(text)
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise ElmokitError(f"sample_efficiency takes per cents above 0 up to 100, not {text!r}")
    return percent
