"""Translation and summarization."""
