"""What a linear classifier finds in each layer."""
