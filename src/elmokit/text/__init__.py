"""From raw text to tokens, character ids and batches: the steps before the model."""
