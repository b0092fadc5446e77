"""Who crawls: agents with their estimators and priors as JSON, and what each of them is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.adaptive import Adaptive, Estimator, Posterior
from agents.adaptive.policies import UnitArms
from agents.policies.base import Agent, Predictor
from agents.policies.index import graded
from agents.registry import AGENTS
from crawl_env import CrawlVectorEnv, Task
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.simulation.observation import SUMMED
from experiments.adaptive.estimators import make_estimator
from experiments.adaptive.expected import Expected
from experiments.core.runner import Job

WEAK = (0.5, 0.01)  # Gamma prior: half an item in a hundredth of an epoch, so 50 an epoch
LOW = (0.5, 0.5)  # 1 an epoch, as sure as half an epoch of crawling makes: low if dense
CERTAINTY, OPTIMISM, THOMPSON, TUNING = (
    f"adaptive-{name}" for name in ("certainty", "optimism", "thompson", "self-tuning")
)
_SUMS = ("items", *SUMMED)
_NOT_THE_ESTIMATORS = ("agent", "estimator", "brought", "prior", "confidence", "name")
_LEAST = 1e-12  # items / time: none, but no division by zero
REFERENCE, FLOOR, CLAIRVOYANT = "whittle", "random", "knows-rates-now"


def player(
    agent: str, estimator: str | None = None, brought: str = "items", **options: Any
) -> dict[str, Any]:
    """Return a player as JSON.

    Arguments:
        agent: a name of `agents.registry.AGENTS`, or `CLAIRVOYANT`.
        estimator: of an adaptive agent, one of `agents.adaptive.ESTIMATORS`; None: its default.
        brought: what an adaptive agent is shown of its crawls, beside whether they were made:
            items, changed, harvest, or sums over the items (of self-tuning ones).
        options: `prior`, a pair of numbers or of lists, one a source; `confidence` of optimism;
            and the estimator's own, such as `retention`.
    """
    if not issubclass(AGENTS.get(agent, object), Adaptive):
        return {"agent": agent}
    if estimator is None and agent != TUNING:
        estimator = "gamma-poisson"
    return {"agent": agent, "estimator": estimator, "brought": brought, **options}


def features(observed: bool = False, itemised: bool = False) -> tuple[str, ...]:
    """Return what a world shows to somebody: the same for all, since content that is counted, or
    followed item by item, is drawn otherwise than content that is not."""
    sums = SUMMED if itemised else ()
    seen = ("age", "crawled", "harvest", "items", "changed", *sums, *PARAMETERS)
    return ("value", *seen) if observed else seen


class Shown:
    """A player in a world that shows more than it may see."""

    def __init__(self, env: CrawlVectorEnv, chosen: dict[str, Any], seed: int) -> None:
        task, names = env.task, shown(chosen, env.task.features)
        self._columns = [task.features.index(name) for name in names]
        mine = task.replaced(features=names)
        self.agent = agent_of(chosen, mine, seed)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        seen = np.asarray(observation)[..., self._columns]
        found: tuple[Any, Any] = self.agent.predict(seen, state, episode_start, deterministic)
        return found


class Knowing:
    """The Whittle index of what waits on average, given all rates so far, at the rates of the
    coming epoch: a reference, which reads the rates from the world."""

    def __init__(self, env: CrawlVectorEnv) -> None:
        self._env = env
        self._affordable = env.task.budget / float(env.task.sources.cost.mean())
        self._waiting: Expected | None = None  # fleets are there once the environment was reset
        self._rate = np.zeros(())

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        world = self._env.world
        if self._waiting is None:
            fleet = world.sources
            columns = fleet.mean_utility, fleet.decay_rate, fleet.cost
            self._arms = UnitArms.of(*columns, fleet.period)
            self._waiting = Expected(world)
        else:
            self._waiting.crawl(self._env.harvest.picked, self._rate)
        self._rate = world.rate
        rate = np.maximum(self._rate, _LEAST)
        index = rate * self._arms.index_at(self._waiting.value / rate)
        return graded(index, None, self._affordable).astype(np.float32), None


def seat(env: CrawlVectorEnv, chosen: dict[str, Any], seed: int) -> Predictor:
    """Return a player for an environment."""
    return Knowing(env) if chosen["agent"] == CLAIRVOYANT else Shown(env, chosen, seed)


def shown(chosen: dict[str, Any], there: Sequence[str]) -> tuple[str, ...]:
    """Return which of the features that are there a player sees."""
    kind: Any = AGENTS[chosen["agent"]]
    seen = ["value", "age"]
    if "estimator" in chosen:
        worth = ("harvest",) if chosen["agent"] == TUNING else ()
        brought = _SUMS if chosen["brought"] == "sums" else (chosen["brought"], *worth)
        seen += ["crawled", *brought, *kind.parameters]
    else:
        seen += PARAMETERS
    return tuple(name for name in there if name in seen)


def agent_of(chosen: dict[str, Any], task: Task, seed: int = 0) -> Agent:
    """Return a player's agent for a task."""
    kind: Any = AGENTS[chosen["agent"]]
    given = {"confidence": chosen["confidence"]} if "confidence" in chosen else {}
    if chosen.get("estimator") is not None:
        given["estimator"] = estimator_of(chosen, task.sources.period)
    agent: Agent = kind(task, seed=seed, **given)
    return agent


def estimator_of(chosen: dict[str, Any], period: float = 1.0) -> Estimator:
    """Return a player's estimator."""
    prior = None
    if "prior" in chosen:
        prior = Posterior(*(np.array(x, dtype=float) for x in chosen["prior"]))
    own = {key: value for key, value in chosen.items() if key not in _NOT_THE_ESTIMATORS}
    return make_estimator(chosen["estimator"], period, prior, **own)


def name_of(unit: Job) -> str:
    """Return what a unit's player is called in records and reports."""
    return str(unit["player"].get("name", unit["player"]["agent"]))


def named(name: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return a player under another name than its agent's."""
    return {**chosen, "name": name}
