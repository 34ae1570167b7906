"""Measure how differently two corpora use a word."""
