"""Files: atomic writes, resumable work, lines, records, paths."""
