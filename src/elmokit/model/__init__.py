"""The biLM itself: token encoder, LSTMs, scalar mix. Nothing here reads files."""
