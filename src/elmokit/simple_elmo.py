"""simple_elmo under its own names; see `elmokit.compat.simple_elmo`."""

from elmokit.compat.simple_elmo import ElmoModel

__all__ = ["ElmoModel"]
