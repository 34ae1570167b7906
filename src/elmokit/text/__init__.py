"""From raw text to tokens and ids: the steps before the model, without torch."""
