"""A fleet that several processes schedule, on one machine or on many: each has a part of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import uuid4

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.scheduling import FleetScheduler
from agents.scheduling.age_index import NEVER
from agents.scheduling.scheduler import Offers
from crawl_env.errors import check_choice, check_whole, counted
from crawl_env.files.arrays import blamed, read_archive
from crawl_env.files.atomic import atomic_file
from crawl_env.fleet.columns import FleetColumns
from crawl_env.numerics import BoolArray, IntArray
from crawl_env.simulation.selection import TOLERANCE
from ephemeral_crawl.cluster.connection import connect


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
        self._checkpoint_step = 0
        self._offered = -1  # step of the last offers
        if checkpoint is not None and checkpoint.exists():
            with blamed(checkpoint, "begin the run again"):
                self._scheduler.set_state(read_archive(checkpoint))
            self._checkpoint_step = self._scheduler.steps

    def offers(self, step: int, decisions: Sequence[Decision], k: int) -> Answer:
        """Carry out the decisions on steps `step`, `step` + 1, …, and offer the best k sources of
        the step after these.

        Decisions that were carried out already are skipped, so that the call may be repeated.
        """
        scheduler = self._scheduler
        if step > scheduler.steps:
            return Answer(scheduler.steps, self._checkpoint_step, None)
        for decision in decisions[scheduler.steps - step :]:
            self._carry_out(decision)
        self._offered = scheduler.steps
        return Answer(scheduler.steps, self._checkpoint_step, scheduler.offers(k))

    def _carry_out(self, decision: Decision) -> None:
        scheduler = self._scheduler
        if self._offered != scheduler.steps:  # in the place of a process that died
            scheduler.offers(decision.number)
        scheduler.take(decision.number)
        if decision.failed is not None:
            scheduler.report(failed=decision.failed)
        if self._checkpoint is not None and scheduler.steps % self._every == 0:
            with atomic_file(self._checkpoint) as path, path.open("wb") as file:
                np.savez(file, **scheduler.get_state())
            self._checkpoint_step = scheduler.steps


POLICIES = ("whittle", "myopic", "oldest-first")
STARTS = ("fresh", "empty", "full")
_RESTARTS = 100  # of a shard, whose process or machine failed
_MARGIN = 1.1  # offers asked of a shard, in multiples of its crawls of the last step
_LEAST = 16  # offers


class ShardedScheduler:
    """A `FleetScheduler` in several processes, each of which has a part of the sources.

    In every step each shard offers its best sources, and the best of all offers are crawled. The
    selections are exactly those of one `FleetScheduler`, ties included. A shard whose process or
    machine fails is started again, elsewhere if need be. It goes on from its last checkpoint and
    repeats the decisions made since, so that all further selections are the same.

    Ray runs the shards; see `ephemeral_crawl.cluster.connection`.

    Arguments:
        fleet: folder of `FleetColumns.save`, at the same place on every machine. Shards map it.
        budget: M, number of crawls per step if all cost the same, else budget units.
        policy: "whittle", "myopic" or "oldest-first".
        shards: number of processes.
        start: "fresh", "empty" or "full"; see `FleetScheduler`.
        checkpoints: folder that all machines share; None repeats all steps if a shard is lost.
        every: steps between checkpoints.

    Attributes:
        steps: number of steps made.
        ages: (K,) steps since the previous crawl of the sources of the last step; 10⁹ or more
            for never.
        price: least index of the sources of the last step, utility / budget unit; NaN before the
            first step.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        FileNotFoundError: there is no fleet in the folder.
        ValueError: an argument is out of range, or sources share hosts or differ in their costs.
    """

    def __init__(
        self,
        fleet: str | PathLike[str],
        budget: float,
        policy: str = "whittle",
        *,
        shards: int = 2,
        start: str = "fresh",
        checkpoints: str | PathLike[str] | None = None,
        every: int = 100,
    ) -> None:
        place = Path(fleet).absolute()
        columns = FleetColumns.open(place)
        check_choice("policy", policy, POLICIES)
        check_choice("start", start, STARTS)
        check_whole("every", every, what="steps")
        if check_whole("shards", shards) > len(columns):
            raise ValueError(
                f"shards is {shards}; the fleet has only {counted(len(columns), 'source')}"
            )
        if columns.host is not None:
            raise ValueError("sources share hosts, which shards cannot; use a FleetScheduler")
        options: dict[str, Any] = {"budget": budget, "policy": policy, "start": start}
        FleetScheduler(columns[:1], **options)  # checks the arguments
        self._number = _number(columns, budget)
        self.steps = 0
        self.price = np.nan
        self.ages: NDArray[np.uint32] = np.zeros(0, np.uint32)
        bounds = np.linspace(0, len(columns), shards + 1).astype(int)
        self._first = bounds[:-1]
        self._limit = np.minimum(np.diff(bounds), self._number)  # offers of a shard
        self._numbers = self._with_margin(self._number * np.diff(bounds) / len(columns))
        self._log: list[list[Decision]] = [[] for _ in range(shards)]  # since the checkpoints
        self._crawls = np.zeros(shards, int)  # of the shards in the last step
        self._folder = None
        if checkpoints is not None:
            self._folder = Path(checkpoints).absolute() / f"run-{uuid4().hex}"
            self._folder.mkdir(parents=True)
        self._ray = connect(max(joblib.cpu_count(), shards))
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if cores < shards:
            raise ValueError(f"shards is {shards}; the cluster has only {cores} cores")
        actor = self._ray.remote(
            num_cpus=1,
            max_restarts=_RESTARTS,
            max_task_retries=-1,
            scheduling_strategy="SPREAD",
        )(Shard)
        self._shards = [
            actor.remote(place, first, last, options, self._file(i), every)
            for i, (first, last) in enumerate(pairwise(bounds))
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes of the shards, and remove their checkpoints."""
        for shard in self._shards:
            self._ray.kill(shard)
        self._shards = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # ----------------------------------------------------------------------------- stepping

    def step(self) -> IntArray:
        """Return the sources crawled in this step, ascending (K,), and go on to the next step.

        Raises:
            ChildProcessError: a shard failed again and again, or its checkpoint is not there.
        """
        numbers = dict(enumerate(self._numbers))
        offers: dict[int, Offers] = {}
        while numbers:
            offers |= self._offers(numbers)
            keys, shard = self._join(offers)
            best = _best(keys, self._number)
            crawls = np.bincount(shard[best], minlength=len(self._shards))
            # A shard all of whose offers are taken may have better sources than others.
            numbers = {
                i: min(2 * k, self._limit[i])
                for i, k in numbers.items()
                if crawls[i] == k < self._limit[i]
            }
        for log, number in zip(self._log, crawls, strict=True):
            log.append(Decision(int(number)))
        self._crawls, self._numbers = crawls, self._with_margin(crawls)
        sources = keys.source[best].astype(np.intp) + self._first[shard[best]]
        order = np.argsort(sources)
        crawled_at = keys.crawled_at[best][order]
        self.ages = (NEVER + self.steps - crawled_at.astype(np.int64)).astype(np.uint32)
        if best.size:
            self.price = float(keys.index[best].min())
        self.steps += 1
        return sources[order]

    def report(self, *, failed: ArrayLike) -> None:
        """Report the results of the crawls of the last step, before the next step.

        Arguments:
            failed: (K,) whether each crawl failed: the content of the source stays and its age goes
                on counting.

        Raises:
            ValueError: there is not one boolean per crawl of the last step.
        """
        mask: BoolArray = np.array(failed)
        if mask.size and mask.dtype != bool:
            raise ValueError(
                f"failed has dtype {mask.dtype}; give True for each crawl that failed and False "
                "for the others"
            )
        mask = mask.astype(bool)
        if mask.shape != (self._crawls.sum(),):
            raise ValueError(
                f"failed has shape {mask.shape}; give one element for each of the "
                f"{self._crawls.sum()} crawls of the last step"
            )
        for log, part in zip(self._log, np.split(mask, np.cumsum(self._crawls)[:-1]), strict=True):
            if log:
                log[-1] = log[-1]._replace(failed=part)

    # ------------------------------------------------------------------------------- shards

    def _file(self, i: int) -> Path | None:
        return None if self._folder is None else self._folder / f"shard-{i}.npz"

    def _with_margin(self, crawls: NDArray[Any]) -> NDArray[np.int64]:
        return np.minimum(np.ceil(_MARGIN * crawls) + _LEAST, self._limit).astype(np.int64)

    def _offers(self, numbers: Mapping[int, int]) -> dict[int, Offers]:
        """Return as many keys of some shards as wanted, or as they have."""
        offers: dict[int, Offers] = {}
        since = dict.fromkeys(numbers, self.steps - 1)  # the first decision to be sent
        while since:
            calls = []
            for i, step in since.items():
                log, start = self._log[i], self.steps - len(self._log[i])
                step = max(step, start)
                k = int(numbers[i])
                calls.append(self._shards[i].offers.remote(step, log[step - start :], k))
            for i, answer in zip(list(since), self._answers(calls), strict=True):
                start = self.steps - len(self._log[i])
                if answer.offers is not None:
                    offers[i] = answer.offers
                    del since[i], self._log[i][: max(answer.saved - start, 0)]
                elif answer.steps >= start:
                    since[i] = answer.steps
                else:
                    raise ChildProcessError(
                        f"shard {i} was started again, and finds no checkpoint at {self._file(i)}; "
                        "give a folder that all machines share"
                    )
        return offers

    def _answers(self, calls: list[Any]) -> list[Answer]:
        errors = self._ray.exceptions
        try:
            return self._ray.get(calls)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise ChildProcessError(f"a shard could not go on. Ray says: {error}") from None

    def _join(self, offers: Mapping[int, Offers]) -> tuple[Offers, IntArray]:
        """Return the keys of all shards, in order, and the shard of each."""
        parts = [offers[i] for i in range(len(self._shards))]
        keys = ((part.index, part.crawled_at, part.source) for part in parts)
        columns = (np.concatenate(column) for column in zip(*keys, strict=True))
        shard = np.repeat(np.arange(len(parts)), [len(part.index) for part in parts])
        return Offers(*columns), shard


def _number(columns: FleetColumns, budget: float) -> int:
    """Return the number of sources that the budget covers."""
    cost = columns.cost
    if cost is not None and cost.min() != cost.max():
        raise ValueError("the costs of the sources differ; shards need equal costs")
    unit = 1.0 if cost is None else float(cost[0])
    return int(min(budget * (1 + TOLERANCE) / unit, len(columns)))


def _best(keys: Offers, number: int) -> IntArray:
    """Return the places of the best keys, of which equal ones are in the order of sources."""
    index = keys.index
    if len(index) <= number:
        return np.arange(len(index))
    threshold = np.partition(index, len(index) - number)[len(index) - number]
    above = np.flatnonzero(index > threshold)
    ties = np.flatnonzero(index == threshold)
    first = np.argsort(keys.crawled_at[ties], kind="stable")[: number - len(above)]
    return np.sort(np.concatenate([above, ties[first]]))
