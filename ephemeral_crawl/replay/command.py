"""`ephemeral-crawl replay`: how much would each policy have collected from a recorded log?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import tyro

from agents.policies.simple import PingFirst
from agents.registry import ON_REQUEST
from crawl_env.log.clock import HOURS
from ephemeral_crawl.comparison import signals
from ephemeral_crawl.comparison.study import ComparisonStudy, fleet_of
from ephemeral_crawl.core.evaluation import FLOOR, REFERENCE
from ephemeral_crawl.replay.play import SCHEDULER
from ephemeral_crawl.replay.recording import Recording
from ephemeral_crawl.replay.split import WEEK, Log, Split

_MOST_STEPS = 10_000_000  # of which the rewards of all runs are held


@dataclass(kw_only=True)
class ReplayLog(Log, ComparisonStudy):
    """Replays a log of what your sources published: how much would each policy have collected?

    The policies are fitted to the first part of the log, and replay the second part, all with the
    same items. The schedule is that of the fleet fitted to the whole log.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("items", "curves", "half_life", "budget", "period", "present", "max_interval"),
        *("signals", "agents", "quick", "out"),
    )
    agent_names: ClassVar[tuple[str, ...]] = (*ComparisonStudy.agent_names, SCHEDULER)
    quickly: ClassVar[dict[str, int]] = {"steps": 1000, "seeds": 2}

    sources: str = ""
    """A fleet of your own, used instead of one fitted to the log: a CSV, or the name of a
    preset."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Steps that are replayed; by default all of the second part, with --quick 1000."""
    agents: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            help=f"Policies to compare; {REFERENCE} and {FLOOR} are always included, and "
            f"{PingFirst.name} with signals. The scheduler is the live one, started from the "
            f"fleet. Besides those of the default: {', '.join(ON_REQUEST)}."
        ),
    ] = tuple(name for name in agent_names if name not in ON_REQUEST)
    seeds: Annotated[int | None, tyro.conf.arg(metavar="S")] = None
    """Runs of each policy, each of which starts one step after the previous one; by default 4, with
    --quick 2."""

    def run(self) -> None:
        self.check(
            *(self.items, self.curves, self.signals),
            *(self.sources, self.present, self.last_crawls),
        )
        for option in ("steps", "seeds"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ValueError(f"--{option} is {value}; it must be at least 1")
        self._budgets(), self._names()  # raise ValueError for impossible values
        self.compare(self._events())

    def _events(self) -> Recording:
        fleet = fleet_of(self.sources, self.period) if self.sources else None
        steps = self.quickly["steps"] if self.quick and self.steps is None else self.steps
        split = self._with_announcements(self.split(fleet, self.period, steps))
        assert self.items is not None
        if split.steps > _MOST_STEPS:
            raise ValueError(
                f"the second part of {self.items} has {split.steps:.4g} steps of {self.period:g} "
                f"{self.unit}s; at most {_MOST_STEPS:,} are replayed: give a longer --period, such "
                f"as {split.rest.span / 10_000:.2g}, or fewer --steps"
            )
        block = self.block or WEEK / HOURS[self.unit]
        return Recording(
            fleet=split.fleet,
            arguments=self._task_arguments,
            seed=self.seed,
            title=f"Replay of {self.items.name}: what each policy would have collected",
            conditions=self._conditions(),
            split=split,
            block=block,
            runs=min(self._option("seeds", 4), split.steps),
        )

    def _with_announcements(self, split: Split) -> Split:
        """Return the split with the signals that the options give."""
        refitted = split.refitted and self._with_signals(split.refitted)
        quiet = signals.without_signals(split.latest)
        return replace(
            split, fleet=self._with_signals(split.fleet), refitted=refitted, latest=quiet
        )
