"""ELMo inside other libraries: one module each, imported only by those who use it."""
