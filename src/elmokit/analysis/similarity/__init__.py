"""Cosines compared with human judgements."""
