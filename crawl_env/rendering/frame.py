"""The content of a picture, whatever its form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation.simulation import Simulation

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, eq=False)
class Frame:
    """One environment of a `Simulation` at one step; all arrays are copies."""

    names: tuple[str, ...]  # (N,)
    value: FloatArray  # (N,) uncollected utility
    belief: FloatArray | None  # (N,) posterior mean of the value; None: it is observed
    ceiling: FloatArray  # (N,) utility, u*, the mean value of a source never crawled
    crawled: NDArray[np.bool_]  # (N,) in the last step
    collected: FloatArray  # (N,) utility, in the last step
    age: FloatArray  # (N,) steps since the last crawl; ≥ NEVER: none
    step: int  # steps elapsed
    rewards: FloatArray | None  # (up to step,) the latest last; None: not kept
    budget: float  # budget units / step
    balance: float | None  # budget units to spend now; None: the budget, every step
    scale: float  # utility, the end of the axis: constant for a fleet, so that it does not jump

    @staticmethod
    def of(
        simulation: Simulation, elapsed: float, rewards: Sequence[float] | None = None, row: int = 0
    ) -> Frame:
        """Return the frame after `elapsed` steps with these `rewards`.

        Raises:
            gymnasium.error.ResetNeeded: the environment was never reset, so `elapsed` is infinite.
        """
        if not np.isfinite(elapsed):
            raise gym.error.ResetNeeded("call env.reset() before the first env.render()")
        task, world = simulation.task, simulation.world
        fleet = world.sources
        sources = fleet.fleet(row) if fleet.arrival_rate.ndim == 2 else fleet
        crawled, collected = _last_harvest(simulation, row)
        unsure = world.belief is not world.value
        return Frame(
            names=sources.names,
            value=world.value[row].copy(),
            belief=np.where(task.observed, world.value[row], world.belief[row]) if unsure else None,
            ceiling=sources.ceiling,
            crawled=crawled,
            collected=collected,
            age=world.age[row],
            step=int(elapsed),
            rewards=None if rewards is None else np.array(rewards, dtype=np.float64),
            budget=task.budget,
            balance=float(simulation.balance[row]) if task.budget_rule == "average" else None,
            scale=_scale(sources, not task.arrivals.random),
        )

    @property
    def root(self) -> bool:
        """Whether the axis is a square root, since many sources would vanish on a linear one."""
        return bool(np.median(self.ceiling) < 0.1 * self.scale)

    def height(self, value: FloatArray) -> FloatArray:
        """Return where values lie on the axis, from 0 to 1; those beyond it at 1."""
        part = np.clip(value / self.scale, 0.0, 1.0)
        return np.sqrt(part) if self.root else part

    def headline(self) -> list[tuple[str, str]]:
        """Return the pairs of label and number that head every picture."""
        pairs = [("step", str(self.step)), ("collected", number(self.collected.sum(), 4))]
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


def _last_harvest(simulation: Simulation, row: int) -> tuple[NDArray[np.bool_], FloatArray]:
    n = simulation.task.n
    rows, source = np.divmod(simulation.harvest.picked, n)
    here = source[rows == row]
    crawled, collected = np.zeros(n, dtype=bool), np.zeros(n)
    crawled[here] = True
    collected[here] = simulation.harvest.value[rows == row]
    return crawled, collected


def _scale(sources: Sources, deterministic: bool) -> float:
    """Return the largest ceiling; for random content with room for two standard deviations."""
    room = np.sqrt(sources.ceiling * sources.mean_utility)  # the deviation for exponential ξ
    top = float(np.max(sources.ceiling if deterministic else sources.ceiling + 2 * room))
    return top if top > 0 else 1.0
