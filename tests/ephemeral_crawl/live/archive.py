"""All events of a store, also those that it has removed, and whether what counts is there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from ephemeral_crawl.live.state import State
from tests.ephemeral_crawl.live import soak_checks
from tests.ephemeral_crawl.live.stores import Store


class Archive:
    """A copy of the journal of a store in a file, a line for each event.

    Attributes:
        unseen: leases whose outcomes were acknowledged, and not found yet.
        number: of the last event.
    """

    def __init__(self, store: Store, path: Path) -> None:
        self._store, self._path = store, path
        self._file = path.open("w", encoding="utf-8")
        self.number, self._latest = 0, ""
        self.unseen = set[int]()
        self._recorded = set[int]()  # leases that are in the journal

    def read(self) -> None:
        """Add what is new, before the store removes it; refuse that an event was lost, or that an
        outcome that was acknowledged is not among them."""
        with contextlib.suppress(psycopg.OperationalError):
            rows = self._store.run(
                f"SELECT number, event FROM journal WHERE number >= {self.number} ORDER BY number"
            )
            if self.number:
                assert rows[:1] == [(self.number, self._latest)], "events were lost"
            for number, event in rows[self.number > 0 :]:
                assert number == self.number + 1, "the journal has a gap"
                self._file.write(event + "\n")
                self.number, self._latest = number, event
                content = json.loads(event)
                self._recorded.update(content["lease"] if content["kind"] == "record" else ())
            self.unseen -= self._recorded
            assert not self.unseen, f"leases {sorted(self.unseen)[:5]} are lost"

    def events(self) -> Iterator[dict[str, Any]]:
        """Return all events."""
        self._file.flush()
        with self._path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    def replayed(self) -> State:
        """Return the state after all events."""
        state = State()
        for event in self.events():
            state.apply(event)
        return state

    def check(self, acknowledged: list[int]) -> None:
        """Refuse outcomes that are missing, or that are there twice."""
        self._file.flush()
        with self._path.open(encoding="utf-8") as lines:
            soak_checks.check_recorded(lines, acknowledged)

    def close(self) -> None:
        self._file.close()
