"""Messages of the library, as the command line prints them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tqdm.auto import tqdm

from elmokit.progress import StderrHandler, log_to_stderr, logger


@pytest.fixture(autouse=True)
def same_handlers_afterwards() -> Iterator[None]:
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_messages_are_printed_once_with_the_name_of_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr()
    log_to_stderr()
    assert sum(isinstance(handler, StderrHandler) for handler in logger.handlers) == 1
    logging.getLogger("elmokit").warning("%d lines are odd", 2)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "elmokit: 2 lines are odd\n")


def test_messages_do_not_break_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    with tqdm(total=2, desc="reading") as bar:
        bar.update()
        logger.info("half")
    assert "\relmokit: half\n" in capsys.readouterr().err
