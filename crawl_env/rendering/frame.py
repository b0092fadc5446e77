"""What a picture of one crawl shows, apart from how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation.simulation import Crawl

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, eq=False)
class Frame:
    """One row of a `Crawl` at one epoch; all arrays are copies."""

    names: tuple[str, ...]  # (N,)
    value: FloatArray  # (N,) utility waiting now
    belief: FloatArray | None  # (N,) utility the crawler believes to wait; None: it knows
    ceiling: FloatArray  # (N,) utility, u*: the mean value of a source never crawled
    crawled: NDArray[np.bool_]  # (N,) in the last epoch
    collected: FloatArray  # (N,) utility, in the last epoch
    age: FloatArray  # (N,) epochs since the last crawl; ≥ NEVER: none
    epoch: int  # epochs elapsed
    rewards: FloatArray | None  # (up to epoch,) the latest last; None: not kept
    budget: float  # budget units / epoch
    balance: float | None  # budget units to spend now; None: the budget, every epoch
    scale: float  # utility, the end of the axis: constant for a fleet, so that it does not jump

    @staticmethod
    def of(
        crawl: Crawl, elapsed: float, rewards: Sequence[float] | None = None, row: int = 0
    ) -> Frame:
        """Return what a crawl shows after `elapsed` epochs that brought `rewards`.

        Raises:
            gymnasium.error.ResetNeeded: the row was never reset, so `elapsed` is infinite.
        """
        if not np.isfinite(elapsed):
            raise gym.error.ResetNeeded("call env.reset() before the first env.render()")
        task, world = crawl.task, crawl.world
        fleet = world.sources
        sources = fleet.row(row) if fleet.arrival_rate.ndim == 2 else fleet
        crawled, collected = _last_harvest(crawl, row)
        unsure = world.belief is not world.value
        return Frame(
            names=sources.names,
            value=world.value[row].copy(),
            belief=np.where(task.observed, world.value[row], world.belief[row]) if unsure else None,
            ceiling=sources.ceiling,
            crawled=crawled,
            collected=collected,
            age=world.age[row],
            epoch=int(elapsed),
            rewards=None if rewards is None else np.array(rewards, dtype=np.float64),
            budget=task.budget,
            balance=float(crawl.balance[row]) if task.budget_rule == "average" else None,
            scale=_scale(sources, not task.arrivals.random),
        )

    @property
    def root(self) -> bool:
        """Whether the axis is a square root: many sources would vanish on a linear one."""
        return bool(np.median(self.ceiling) < 0.1 * self.scale)

    def height(self, value: FloatArray) -> FloatArray:
        """Return where values lie on the axis, from 0 to 1; those beyond it at 1."""
        share = np.clip(value / self.scale, 0.0, 1.0)
        return np.sqrt(share) if self.root else share

    def headline(self) -> list[tuple[str, str]]:
        """Return the pairs of label and number that head every picture."""
        pairs = [("epoch", str(self.epoch)), ("collected", number(self.collected.sum(), 4))]
        if self.rewards is not None:
            some = self.rewards.size > 0
            pairs[1:] = [
                ("reward", number(self.rewards[-1], 4) if some else "–"),
                ("mean reward", number(self.rewards.mean(), 4) if some else "–"),
            ]
        pairs += [("budget", number(self.budget, 4))]
        if self.balance is not None:
            pairs += [("balance", number(self.balance, 4))]
        return [*pairs, ("crawled", f"{self.crawled.sum()} of {self.crawled.size}")]


def number(x: float, digits: int = 3) -> str:
    """Return x with so many significant digits, and thousands as k, M or G.

    >>> number(0.12345), number(999.6), number(123456, digits=4)
    ('0.123', '1k', '123.5k')
    """
    rounded = float(f"{x:.{digits}g}")
    for factor, unit in UNITS:
        if factor <= abs(rounded) < 1e12 and abs(rounded) >= 10**digits:
            return f"{rounded / factor:.{digits}g}{unit}"
    return f"{rounded:.{digits}g}"


def _last_harvest(crawl: Crawl, row: int) -> tuple[NDArray[np.bool_], FloatArray]:
    n = crawl.task.n
    rows, source = np.divmod(crawl.harvest.picked, n)
    here = source[rows == row]
    crawled, collected = np.zeros(n, dtype=bool), np.zeros(n)
    crawled[here] = True
    collected[here] = crawl.harvest.value[rows == row]
    return crawled, collected


def _scale(sources: Sources, deterministic: bool) -> float:
    """Return the largest ceiling; for random content with room for two standard deviations."""
    room = np.sqrt(sources.ceiling * sources.mean_utility)  # the deviation for exponential ξ
    top = float(np.max(sources.ceiling if deterministic else sources.ceiling + 2 * room))
    return top if top > 0 else 1.0
