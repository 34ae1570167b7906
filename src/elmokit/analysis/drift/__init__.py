"""Words that two corpora use differently."""
