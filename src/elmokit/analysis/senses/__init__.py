"""Word senses: build an inventory, tag text, score, and find senses by clustering."""
