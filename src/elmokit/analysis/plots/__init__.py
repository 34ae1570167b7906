"""Figures of what the layers know."""
