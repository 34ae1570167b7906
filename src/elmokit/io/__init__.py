"""Files: atomic writes, resumable outputs, lines, records, paths."""
