"""The files that hold tensors, and where they are found."""
