"""Readers and writers of every model format: files to a `Checkpoint` and back."""
