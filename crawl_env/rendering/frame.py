"""`Frame`: the content of a picture, independent of how it is rendered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from crawl_env.content.world import World
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation.simulation import Simulation

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, eq=False)
class Queue:
    """The queue in front of an indexing engine, and what became of items in the last step."""

    waiting: int
    capacity: int | None  # None: any number
    indexed: int
    refused: int
    lost: int

    @staticmethod
    def of(world: World, env: int) -> Queue | None:
        """Return the queue of an environment, or None if it has no engine."""
        if world.queue is None:
            return None
        ledger, capacity = world.queue.ledger, world.queue.engine.capacity
        entries = ledger.backlog, ledger.indexed, ledger.refused, ledger.lost
        waiting, indexed, refused, lost = (int(entry[env, 0]) for entry in entries)
        return Queue(waiting, capacity, indexed, refused, lost)

    @property
    def full(self) -> float:
        """The part of the places that is taken; of the next power of ten if there is no limit."""
        if self.capacity is None:
            return self.waiting / 10 ** max(1, int(np.ceil(np.log10(max(self.waiting, 1)))))
        return self.waiting / max(self.capacity, 1)

    def __str__(self) -> str:
        places = "" if self.capacity is None else f" of {number(self.capacity)}"
        words = [f"{number(self.waiting)}{places} waiting", f"{number(self.indexed)} indexed"]
        more = (("refused", self.refused), ("lost", self.lost))
        return ", ".join(words + [f"{number(count)} {name}" for name, count in more if count])


@dataclass(frozen=True, eq=False)
class Frame:
    """Content of a picture: one environment of a `Simulation` at one step, as copies."""

    names: tuple[str, ...]  # (N,)
    value: FloatArray  # (N,) uncollected utility
    belief: FloatArray | None  # (N,) posterior mean of the value; None if all are observed
    ceiling: FloatArray  # (N,) utility, u*, the mean value of a source never crawled
    crawled: NDArray[np.bool_]  # (N,) whether the last step crawled the source
    collected: FloatArray  # (N,) utility, in the last step
    age: FloatArray  # (N,) steps since the last crawl; ≥ NEVER: never crawled
    pings: FloatArray | None  # (N,) number in the last step; None if no source sends signals
    queue: Queue | None  # None without an engine
    step: int  # steps elapsed
    rewards: FloatArray | None  # (up to step,) latest last; None if they are not recorded
    budget: float  # budget units / step
    balance: float | None  # budget units to spend now; None if the budget is per step
    scale: float  # utility at the end of the axis, constant for a fleet

    @staticmethod
    def of(
        simulation: Simulation, elapsed: float, rewards: Sequence[float] | None = None, env: int = 0
    ) -> Frame:
        """Return the frame after `elapsed` steps with these `rewards`.

        Raises:
            gymnasium.error.ResetNeeded: the environment was never reset, so `elapsed` is infinite.
        """
        if not np.isfinite(elapsed):
            raise gym.error.ResetNeeded("call env.reset() before the first env.render()")
        task, world = simulation.task, simulation.world
        fleet = world.sources
        sources = fleet.fleet(env) if fleet.arrival_rate.ndim == 2 else fleet
        crawled, collected = _last_harvest(simulation, env)
        unsure, pings = world.belief is not world.value, world.pings
        return Frame(
            names=sources.names,
            value=world.value[env].copy(),
            belief=np.where(task.observed, world.value[env], world.belief[env]) if unsure else None,
            ceiling=sources.ceiling,
            crawled=crawled,
            collected=collected,
            age=world.age[env],
            pings=None if pings is None else pings[env],
            queue=Queue.of(world, env),
            step=int(elapsed),
            rewards=None if rewards is None else np.array(rewards, dtype=np.float64),
            budget=task.budget,
            balance=float(simulation.balance[env]) if task.budget_rule == "average" else None,
            scale=_scale(sources, not task.arrivals.random),
        )

    @property
    def root(self) -> bool:
        """Whether the axis is a square root, used if most bars would vanish on a linear one."""
        return bool(np.median(self.ceiling) < 0.1 * self.scale)

    def height(self, value: FloatArray) -> FloatArray:
        """Return the positions of values on the axis, clipped to [0, 1]."""
        part = np.clip(value / self.scale, 0.0, 1.0)
        return np.sqrt(part) if self.root else part

    def headline(self) -> list[tuple[str, str]]:
        """Return the pairs of label and number at the top of every picture."""
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
        if self.pings is not None:
            pairs += [("pings", number(self.pings.sum(), 4))]
        return [*pairs, ("crawled", f"{self.crawled.sum()} of {self.crawled.size}")]


def number(x: float, digits: int = 3) -> str:
    """Return x with `digits` significant digits, and thousands as k, M or G.

    >>> number(0.12345), number(999.6), number(123456, digits=4)
    ('0.123', '1k', '123.5k')
    """
    rounded = float(f"{x:.{digits}g}")
    for factor, unit in UNITS:
        if factor <= abs(rounded) < 1e12 and abs(rounded) >= 10**digits:
            return f"{rounded / factor:.{digits}g}{unit}"
    return f"{rounded:.{digits}g}"


def _last_harvest(simulation: Simulation, env: int) -> tuple[NDArray[np.bool_], FloatArray]:
    n = simulation.task.n
    envs, source = np.divmod(simulation.harvest.picked, n)
    here = source[envs == env]
    crawled, collected = np.zeros(n, dtype=bool), np.zeros(n)
    crawled[here] = True
    collected[here] = simulation.harvest.value[envs == env]
    return crawled, collected


def _scale(sources: Sources, deterministic: bool) -> float:
    """Return the largest ceiling, plus two standard deviations if the content is random."""
    room = np.sqrt(sources.ceiling * sources.mean_utility)  # standard deviation, exponential ξ
    top = float(np.max(sources.ceiling if deterministic else sources.ceiling + 2 * room))
    return top if top > 0 else 1.0
