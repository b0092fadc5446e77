"""Leases: the right to fetch a source for a while."""

from __future__ import annotations

from dataclasses import dataclass

from ephemeral_crawl.live import choice, rank
from ephemeral_crawl.live.outcomes import Moment
from ephemeral_crawl.live.state import Event, State

_REASONS = {
    rank.NEW: "not fetched yet",
    rank.CEILING: "its maximum interval has passed",
    rank.ROTATION: "not fetched for a whole rotation",
    rank.SIGNAL: "pinged: its index has reached the price",
    rank.INDEX: "its index has reached the price",
    rank.RETRY: "it failed, and may answer again",
}


@dataclass(slots=True)
class Lease:
    """The right to fetch a source, until it expires."""

    id: int
    source: str
    value: float  # expected worth that the fetch collects
    index: float  # what it is worth per budget unit, compared with waiting
    price: float  # which the index has reached
    reason: str
    expires: float  # seconds since 1970


def lease_event(
    state: State, moment: Moment, limit: int, timeout: float
) -> tuple[Event | None, list[Lease]]:
    """Return the leases that are given now, and the event.

    Arguments:
        limit: largest number of leases.
        timeout: seconds until they expire.
    """
    now = moment.time
    found = choice.choose(state, limit, now)
    if not len(found.row):
        return None, []
    rows = found.row.tolist()
    first, end, asked = state.last_lease + 1, now + timeout, state.accepted_at(now)
    expires = end - moment.offset
    columns = zip(
        state.names.of(found.row),
        found.value.tolist(),
        found.gain.tolist(),
        found.reason.tolist(),
        strict=True,
    )
    leases = [
        Lease(number, name or "", value, index, asked, _REASONS[reason], expires)
        for number, (name, value, index, reason) in enumerate(columns, first)
    ]
    if state.tags:  # at whose prices they are due
        for lease, factor in zip(leases, state.table["factor"][found.row].tolist(), strict=True):
            lease.index, lease.price = lease.index * factor, asked * factor
    return {"kind": "lease", "first": first, "rows": rows, "end": end}, leases
