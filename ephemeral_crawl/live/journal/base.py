"""What a journal is, and what journals in SQL databases have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from crawl_env.errors import shown

Event = dict[str, Any]

VERSION = 1  # of the tables
KEPT = 100_000  # events before the last snapshot
PATIENCE = 30.0  # seconds to wait for another process, or for the database
_PART = 1 << 26  # bytes of a snapshot in one row


class Journal(Protocol):
    """Where the events of a scheduler are stored."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Return a context in which no other process changes the journal; it commits at its end,
        and changes nothing if it is left by an exception."""
        ...

    def since(self, number: int) -> list[tuple[int, Event]] | None:
        """Return the numbers and events after a number; None if some of them were removed."""
        ...

    def append(self, number: int, event: Event) -> None:
        """Add an event, in an exclusive context; its number is that of the last one plus 1."""
        ...

    def snapshot(self) -> tuple[int, bytes] | None:
        """Return the last snapshot and the number of the last event in it."""
        ...

    def write_snapshot(self, number: int, data: bytes) -> None:
        """Replace the snapshot, in an exclusive context."""
        ...

    def close(self) -> None: ...


class NoJournal:
    """Stores nothing, for a scheduler in memory."""

    def __init__(self) -> None:
        self._number = 0

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        yield

    def since(self, number: int) -> list[tuple[int, Event]] | None:
        return [] if number == self._number else None

    def append(self, number: int, event: Event) -> None:
        self._number = number

    def snapshot(self) -> tuple[int, bytes] | None:
        return None

    def write_snapshot(self, number: int, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


class SqlJournal(ABC):
    """A journal in two tables of a database: one row per event, and the parts of the snapshot."""

    name: str  # of the database, for messages; without a password

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """Return a transaction that no other process writes beside."""

    @abstractmethod
    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, whose parameters are written as ?, and return the rows it gives."""

    @abstractmethod
    def close(self) -> None: ...

    def since(self, number: int) -> list[tuple[int, Event]] | None:
        rows = self.rows(
            "SELECT number, event FROM journal WHERE number > ? ORDER BY number", [number]
        )
        if rows and rows[0][0] != number + 1:
            return None
        return [(at, self._decoded(at, text)) for at, text in rows]

    def append(self, number: int, event: Event) -> None:
        text = json.dumps(event, allow_nan=False, separators=(",", ":"))
        self.rows("INSERT INTO journal (number, event) VALUES (?, ?)", [number, text])

    def snapshot(self) -> tuple[int, bytes] | None:
        rows = self.rows("SELECT number, state FROM snapshot ORDER BY part")
        if not rows:
            return None
        if len({number for number, _ in rows}) > 1:
            raise ValueError(f"{self.name}: the snapshot is damaged: its parts do not fit together")
        return rows[0][0], b"".join(part for _, part in rows)

    def write_snapshot(self, number: int, data: bytes) -> None:
        self.rows("DELETE FROM snapshot")
        for part, start in enumerate(range(0, len(data), _PART)):
            self.rows(
                "INSERT INTO snapshot (part, number, state) VALUES (?, ?, ?)",
                [part, number, data[start : start + _PART]],
            )
        self.rows("DELETE FROM journal WHERE number <= ?", [number - KEPT])

    def migrate(self, version: int, steps: Mapping[int, Sequence[str]]) -> None:
        """Bring tables of an earlier version to the present one, in an exclusive context.

        Arguments:
            version: that of the tables.
            steps: the statements that lead from each version to the next.
        """
        if not 0 < version <= VERSION:
            raise ValueError(
                f"{self.name} has version {version} of the tables and this program has {VERSION}; "
                "use the program that wrote it"
            )
        for step in range(version, VERSION):
            for statement in steps[step]:
                self.rows(statement)

    def _decoded(self, number: int, text: str) -> Event:
        try:
            event = json.loads(text, parse_constant=_refuse)
            if not isinstance(event, dict):
                raise ValueError(f"it is {shown(event)}")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.name}: event {number} is damaged: {error}") from error
        return event


def _refuse(name: str) -> float:
    raise ValueError(f"a number is {name}")
