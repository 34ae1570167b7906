"""The log: a JSON object per line on stderr, of elmokit and of uvicorn."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

SECONDS = 0.1  # that a message may wait for others

as_line = json.JSONEncoder(ensure_ascii=False).encode


class JsonLines(logging.Formatter):
    """Log records as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "time": f"{now}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
        }
        fields = getattr(record, "fields", None)
        entry |= fields or {"event": record.name, "message": record.getMessage()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return as_line(entry)


class LinesTogether(logging.Handler):
    """Writes the lines of many requests at once.

    A write lets the thread of a model run, which takes milliseconds to give way again: one write
    for each request would slow all of them down. A moment later the next batch runs, so that
    making the lines does not keep it waiting.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record for a moment; write at once what is urgent or outside of the event loop."""
        self.records.append(record)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if record.levelno >= logging.WARNING:
            self.flush()
        elif len(self.records) == 1:
            loop.call_later(SECONDS, self.flush)

    def flush(self) -> None:
        """Write all records that are kept; logging calls this at the end of the process too."""
        records, self.records = self.records, []
        if records:
            sys.stderr.write("".join(self.format(record) + "\n" for record in records))
            sys.stderr.flush()


def log_json_lines() -> None:
    """Write all messages, of elmokit and of uvicorn, as JSON lines to stderr."""
    handler = LinesTogether()
    handler.setFormatter(JsonLines())
    for name in ("elmokit", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
