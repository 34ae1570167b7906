"""The files that `embed` writes, and static word vectors."""
