"""Measure what a linear classifier finds in each layer."""
