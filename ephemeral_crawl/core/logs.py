"""What commands that run for long say of themselves: lines of text or JSON, from a level on.

A record may carry fields, which JSON shows, too:
`log.info("…", extra={"fields": {"source": url}})`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["text", "json"]


class _Text(logging.Formatter):
    """Lines for people, by `%`-formatting as in the standard library."""

    def __init__(self, text: str, redact: Callable[[str], str]) -> None:
        super().__init__(text)
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))


class _Json(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger and message; the fields of the record; and
    the traceback of an exception."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        redacted = {key: self._redact(x) if isinstance(x, str) else x for key, x in fields.items()}
        return json.dumps(redacted, ensure_ascii=False)


@contextmanager
def logged(
    names: tuple[str, ...], level: Level, form: Form, text: str, redact: Callable[[str], str]
) -> Iterator[None]:
    """Write the records of some loggers to standard error while the context lasts.

    Arguments:
        names: of the loggers, such as "ephemeral_crawl".
        level: the least important level that is written.
        form: lines of text, or of JSON.
        text: format of lines of text, such as "%(message)s".
        redact: what makes texts fit to be written, such as `redacted`, which leaves out the
            credentials of URLs.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(redact) if form == "json" else _Text(text, redact))
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    try:
        yield
    finally:
        for logger, (handlers, propagate, least) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(least)
