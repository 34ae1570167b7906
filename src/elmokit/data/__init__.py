"""Readers of labeled files."""
