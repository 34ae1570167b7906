"""Readers and writers of every model format; the model itself reads no files.

A format turns files into a `Checkpoint` (configuration, named tensors, vocabulary, metadata) and
back. All it knows about the model is the names of the tensors, and nothing here imports torch
except `containers/state_dict.py`.
"""
