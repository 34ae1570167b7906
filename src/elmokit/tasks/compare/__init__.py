"""Train a task with and without ELMo, many ways, and compare."""
