"""The task models, each named like its task."""
