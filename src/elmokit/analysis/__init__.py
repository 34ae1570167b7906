"""What the layers know: senses, probes, neighbours, similarity, drift and their pictures."""
