"""Command lines of the benchmarks: the docstring of a script is its help text."""

from __future__ import annotations

import argparse


def described_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help shows a docstring as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
