"""What makes the model fast: packed weights, table look-ups, hand-written gradients."""
