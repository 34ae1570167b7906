"""Building blocks of the task models."""
