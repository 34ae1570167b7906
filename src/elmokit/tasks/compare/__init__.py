"""Train a task with and without ELMo, under several conditions, and compare the scores."""

from elmokit.tasks.compare.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
