"""Reads and writes every file format; the model itself reads no files.

A format turns files into a `Checkpoint` (configuration, named tensors, vocabulary, metadata) and
back. What it knows of the model are the tensors' names.
"""
