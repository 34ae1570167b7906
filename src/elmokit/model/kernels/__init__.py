"""Fast products, look-up tables and losses on tensors, which `model` and `model.fast` share."""
