"""One part of a fleet, scheduled in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.scheduling import FleetScheduler
from agents.scheduling.scheduler import Offers
from crawl_env.files.arrays import blamed, read_archive
from crawl_env.files.atomic import atomic_file
from crawl_env.fleet.columns import FleetColumns
from crawl_env.numerics import BoolArray


class Decision(NamedTuple):
    """What a shard did in one step; which sources it crawled follows from their number."""

    number: int  # sources crawled
    failed: BoolArray | None = None  # (number,) whether each crawl failed


class Answer(NamedTuple):
    """What a shard offers, or None if it lacks decisions made before."""

    steps: int  # made by the shard
    saved: int  # step of its checkpoint
    offers: Offers | None


class Shard:
    """Sources `first` … `last` − 1 of a fleet.

    A process that takes the place of one that died goes on from the checkpoint.

    Arguments:
        fleet: folder of the whole fleet, which is mapped.
        options: arguments of `FleetScheduler`.
        checkpoint: file; None for no checkpoints.
        every: steps between checkpoints.
    """

    def __init__(
        self,
        fleet: Path,
        first: int,
        last: int,
        options: dict[str, Any],
        checkpoint: Path | None,
        every: int,
    ) -> None:
        self._scheduler = FleetScheduler(FleetColumns.open(fleet)[first:last], **options)
        self._checkpoint, self._every = checkpoint, every
        self._saved = 0
        self._offered = -1  # step of the last offers
        if checkpoint is not None and checkpoint.exists():
            with blamed(checkpoint, "begin the run again"):
                self._scheduler.set_state(read_archive(checkpoint))
            self._saved = self._scheduler.steps

    def offers(self, step: int, decisions: Sequence[Decision], k: int) -> Answer:
        """Carry out the decisions on steps `step`, `step` + 1, …, and offer the best k sources of
        the step after these.

        Decisions that were carried out already are skipped, so that the call may be repeated.
        """
        scheduler = self._scheduler
        if step > scheduler.steps:
            return Answer(scheduler.steps, self._saved, None)
        for decision in decisions[scheduler.steps - step :]:
            self._carry_out(decision)
        self._offered = scheduler.steps
        return Answer(scheduler.steps, self._saved, scheduler.offers(k))

    def _carry_out(self, decision: Decision) -> None:
        scheduler = self._scheduler
        if self._offered != scheduler.steps:  # in the place of a process that died
            scheduler.offers(decision.number)
        scheduler.take(decision.number)
        if decision.failed is not None:
            scheduler.report(failed=decision.failed)
        if self._checkpoint is not None and scheduler.steps % self._every == 0:
            with atomic_file(self._checkpoint) as new, new.open("wb") as file:
                np.savez(file, **scheduler.get_state())
            self._saved = scheduler.steps
