"""The commands that analyze what the layers know: options in, library call, result printed."""
