"""What makes the model fast: packed weights, both directions at once, hand-written gradients."""
