"""A planner: one step of policy improvement by simulation, as a reference for coupled tasks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import Agent, Environment, ObservationView, needs
from agents.policies.deadline import WhittleDeadline
from agents.policies.index import IndexAgent, Whittle
from agents.policies.topics import GreedyTopics
from agents.theory.arm import PerFleet
from crawl_env import Arrivals, CrawlVectorEnv, Deadline, DiminishingReturns, Sources, Task
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import whole_budget

_BASES: dict[type[Any], type[IndexAgent]] = {
    Deadline: WhittleDeadline,
    DiminishingReturns: GreedyTopics,
}


class Planner(Agent):
    """Simulates what follows on each of some choices, and takes the best (one-step rollout).

    The choices are the M sources that a base policy would crawl, and every set in which one of them
    is replaced by one of the `others` next in its order. What each is worth is the discounted
    reward of `horizon` steps: the choice, then the base policy. It heeds what couples the sources
    in those steps, and takes much longer than its base: a reference where sources are coupled by a
    payoff, and no upper bound.

    The simulation is the environment with deterministic arrivals, from the present ages and content
    as observed or believed. It knows nothing that the agent does not, and no future. Under a
    deadline, and wherever else rewards are linear in the content and the base crawls by ages, it
    gives the expectation; under diminishing returns it neglects the variance of the content.

    The base is `whittle-deadline` under a deadline, `greedy-topics` under diminishing returns, else
    `whittle`.

    Arguments:
        env: an environment, a vector environment, or a `Task`.
        seed: unused.
        horizon: steps of a simulation.
        others: sources beside those of the base that are tried.
        discount: per step. Without discounting, a simulation that ends at some step makes the last
            steps count as if nothing came after them.

    Raises:
        ValueError: `age` is not observed; the budget is not one for each step, costs differ, or
            rates change, items are announced by signals, or sources can be looked at.

    >>> from agents import compare
    >>> task = {"sources": Sources.random(12, 3), "budget": 1, "payoff": Deadline(8)}
    >>> runs = compare(["whittle-deadline", "planner"], task, steps=64, warmup=32, seeds=1)
    >>> bool(runs["planner"].reward > runs["whittle-deadline"].reward)
    True
    """

    name = "planner"
    features = ("age",)

    @classmethod
    def features_in(cls, task: Task) -> tuple[str, ...]:
        return (*cls.features, *_base_of(task).features_in(task))

    def __init__(
        self,
        env: Environment,
        *,
        seed: int | None = None,
        horizon: int = 96,
        others: int = 6,
        discount: float = 0.98,
    ) -> None:
        super().__init__(env, seed=seed)
        task = self.task
        needs(task, self.name, "age")
        room = whole_budget(task.sources.cost, task.budget)
        constant = isinstance(task.arrivals, Arrivals) and not task.arrivals.stateful
        plain = constant or not task.arrivals.random
        if task.budget_rule != "step" or room is None or task.look_cost is not None or not plain:
            raise ValueError(
                f"agent {self.name!r} simulates crawls of equal cost, a budget for every step and "
                f"constant rates, and the task is {task!r}"
            )
        if task.sources.is_signalled or task.sources.is_delayed or task.engine is not None:
            raise ValueError(
                f"agent {self.name!r} simulates ages and content alone, and the task has signals, "
                "crawl delays or an engine"
            )
        self._base = _base_of(task)(task)
        self._room = min(room, task.n)
        self._horizon, self._discount = horizon, discount
        self._others = min(others, task.n - self._room)
        self._env: CrawlVectorEnv | None = None
        self._simulated_base = self._base

    def priority(self, view: ObservationView) -> NDArray[Any]:
        choices = self._choices(self._base.priority(view))  # (B, K, N)
        b, k, n = choices.shape
        env = self._started(view, b, k)
        action, worth, weight = choices.reshape(b * k, n), np.zeros(b * k), 1.0
        for _ in range(self._horizon):
            observation, reward, *_ = env.step(action)
            worth += weight * reward
            weight *= self._discount
            simulated = ObservationView(observation, env.task, env.world.sources)
            action = self._simulated_base.priority(simulated).astype(np.float32)
        return np.asarray(choices[np.arange(b), worth.reshape(b, k).argmax(axis=1)])

    def _choices(self, priority: FloatArray) -> NDArray[np.float32]:
        """Return priorities of which the first, of each row, selects what the base does."""
        order = np.argsort(-priority, axis=-1, kind="stable")
        places = [(m, self._room + k) for k in range(self._others) for m in range(self._room)]
        choices = np.repeat(priority[:, None] / 4.0, 1 + len(places), axis=1)
        rows = np.arange(len(priority))
        for number, exchange in enumerate([(0, 0), *places]):
            out, in_ = exchange
            choice = np.zeros(priority.shape)
            choice[rows[:, None], order[:, : self._room]] = 0.5
            choice[rows, order[:, out]] = 0.0
            choice[rows, order[:, in_]] = 0.5
            choices[:, number] += choice
        return choices.astype(np.float32)

    def _started(self, view: ObservationView, b: int, k: int) -> CrawlVectorEnv:
        """Return the simulation, put into the present state of each environment K times."""
        if self._env is None or self._env.num_envs != b * k:
            task = self.task.replaced(
                arrivals="deterministic", horizon=None, flat=False, scaled=False
            )
            self._env = CrawlVectorEnv(b * k, **task.arguments)
            self._fleet_of = PerFleet(partial(_repeated, b=b, k=k))
            self._simulated_base = _base_of(task)(self._env)
            self._env.reset(seed=0)
        env = self._env
        age, content = np.repeat(view["age"], k, axis=0), np.repeat(view.value, k, axis=0)
        state = env.get_state()
        if self.task.draw is not None:
            state["sources"] = self._fleet_of(view.sources)
        if isinstance(self.task.payoff, Deadline) and self.task.payoff.steps > 1:
            elapsed = self.task.payoff.steps - 1.0 - view["steps_left"][:, 0]
            state["in_episode"] = np.repeat(elapsed, k)
        env.set_state(state)
        env.world.start(age, env.np_random, value=content)
        return env


def _base_of(task: Task) -> type[IndexAgent]:
    return _BASES.get(type(task.payoff), Whittle)


def _repeated(sources: Sources, b: int, k: int) -> Sources:
    """Return a batch of B fleets with each of them K times in turn."""
    return Sources.stack([fleet for row in range(b) for fleet in [sources.fleet(row)] * k])
