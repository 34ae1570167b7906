"""The command line: options in, library call, result printed."""
