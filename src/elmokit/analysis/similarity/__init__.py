"""Compare cosines with what people say of words in context, or of sentences."""
