"""A log that every Debian system has: the changelogs of its packages."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from crawl_env.log.item_log import ItemLog

DOCUMENTATION = Path("/usr/share/doc")
ORIGIN = datetime(1990, 1, 1, tzinfo=UTC)  # time 0; earlier dates are wrong

_HEAD = re.compile(r"^(?P<package>[a-z0-9][a-z0-9+.-]*) \((?P<version>[^()\s]+)\)[^;]*;")
_SIGNED = re.compile(r"^ -- .*>  (?P<date>\S.*)$")
_LARGEST = 1 << 24  # bytes that are read of one file


def debian_changelogs(folder: Path = DOCUMENTATION) -> ItemLog:
    """Return the log of the Debian packages of this machine: sources are source packages, items
    the entries of their changelogs, published at the date with which they are signed, in days.

    The entries of `*/changelog*.gz` are read; an entry that several packages have counts once,
    and entries without a date, or from before 1990, are left out. Utilities are 1. The log depends
    on which packages are installed: see `ItemLog.digest`.

    Raises:
        ValueError: there are none.
    """
    entries = {
        (package, version): days
        for path in sorted(folder.glob("*/changelog*.gz"))
        for package, version, days in _entries(path)
        if days >= 0
    }
    if not entries:
        raise ValueError(
            f"{folder} has no changelogs of Debian packages; this recording needs a Debian system "
            "whose documentation was not removed"
        )
    rows = sorted((days, package, version) for (package, version), days in entries.items())
    names = sorted({package for _, package, _ in rows})
    place = {name: i for i, name in enumerate(names)}
    return ItemLog(
        names,
        [place[package] for _, package, _ in rows],
        [days for days, *_ in rows],
        [1.0] * len(rows),
        unit="day",
        origin=f"{ORIGIN:%Y-%m-%dT%H:%M:%S}Z",
    )


def _entries(path: Path) -> list[tuple[str, str, float]]:
    """Return package, version and date, in days, of the entries of a file; none if it is damaged
    or no changelog of Debian's format."""
    try:
        with gzip.open(path) as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except (OSError, EOFError):
        return []
    entries, head = [], None
    for line in text.splitlines():
        if start := _HEAD.match(line):
            head = start
        elif head is not None and (end := _SIGNED.match(line)):
            try:
                moment = parsedate_to_datetime(end["date"])
            except ValueError:
                continue
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            days = (aware - ORIGIN).total_seconds() / 86_400
            entries.append((head["package"], head["version"], days))
            head = None
    return entries
