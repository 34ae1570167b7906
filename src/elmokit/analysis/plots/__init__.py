"""Draw what the layers know."""
