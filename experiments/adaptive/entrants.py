"""The entrants: agents with their estimators and priors as JSON, and their observations.

The estimators are those of `agents.inference`, and one that restarts when a test finds that a rate
has changed, which the documentation does not recommend.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Any, ClassVar

import numpy as np

from agents.adaptive import Adaptive
from agents.adaptive.base import UnitArms
from agents.adaptive.network import Network
from agents.inference import ESTIMATORS as LIBRARY
from agents.inference import CrawlOutcome, Estimator, Posterior, State, made, rates
from agents.inference.rates import check_prior, conjugate
from agents.policies.base import Agent, ObservationView, Policy, Predictor, graded
from agents.registry import AGENTS
from crawl_env import CrawlVectorEnv, Task, World
from crawl_env.errors import check_within
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.observation import SUMMED
from ephemeral_crawl.core.evaluation import collected
from ephemeral_crawl.core.runner import Job


@dataclass(frozen=True)
class Drifting:
    """Gamma–Poisson with a two-sided CUSUM on its own predictions, which restarts a source.

    Each crawl compares two predictions of its count, both negative binomial: by the posterior
    (A, B), and by the same with all rates κ times as large,

        S ← max(0, S + n ln κ − (A + n) ln((B + κτ)/(B + τ))),

    one S for κ = `factor` and one for 1/κ. For B → ∞ this is Page's CUSUM n ln κ − Λ(κ − 1)τ. An S
    above h = ln(2/`false_alarms`) is an alarm: the posterior becomes the prior with this one crawl.

    While the rate does not change, e^S grows by a factor of mean 1 for rates drawn from the prior,
    so that alarms occur at most once in e^h crawls and side on average over such rates (Lorden).

    Arguments:
        factor: κ > 1, the change to detect.
        false_alarms: in (0, 1), the bound on their rate per crawl.
        prior: shape and rate before any crawl.

    Raises:
        ValueError: an argument is out of range.
    """

    factor: float = 3.0
    false_alarms: float = 1e-3
    prior: Posterior = rates.WEAK
    counts: ClassVar[bool] = True
    signed: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_within("factor", self.factor, 1.0, open_low=True)
        check_within("false_alarms", self.false_alarms, 0.0, 1.0, open_low=True, open_high=True)

    def begin(self, shape: tuple[int, ...]) -> State:
        return tuple(np.zeros(shape) for _ in range(4))

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        count, exposure, rise, fall = state
        shape, rate = self.prior.shape + count, self.prior.rate + exposure
        risen = _cusum(rise, shape, rate, outcome, self.factor)
        fallen = _cusum(fall, shape, rate, outcome, 1.0 / self.factor)
        alarm = outcome.crawled & (np.maximum(risen, fallen) > log(2.0 / self.false_alarms))
        return (
            np.where(alarm, 0.0, count) + outcome.items,
            np.where(alarm, 0.0, exposure) + outcome.gap,
            np.where(alarm, 0.0, risen),
            np.where(alarm, 0.0, fallen),
        )

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        return conjugate(self.prior, state[0], state[1], cells)


def _cusum(
    sum_: FloatArray, shape: FloatArray, rate: FloatArray, outcome: CrawlOutcome, factor: float
) -> FloatArray:
    """Return the CUSUM after a step; a source that was not crawled adds ln 1 = 0."""
    n, gap = outcome.items, outcome.gap
    odds = np.log1p((factor - 1.0) * gap / (rate + gap))
    return np.maximum(0.0, sum_ + n * log(factor) - (shape + n) * odds)


ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    **LIBRARY,
    "drifting": lambda period, prior, factor=3.0, false_alarms=1e-3: Drifting(
        factor, false_alarms, prior
    ),
}


def make_estimator(
    estimator: str | Estimator,
    period: float = 1.0,
    prior: Posterior | None = None,
    **options: Any,
) -> Estimator:
    """Return an estimator of the library or of this study by name, as
    `agents.inference.make_estimator`.

    >>> make_estimator("drifting", factor=2.0).factor
    2.0
    """
    return made(ESTIMATORS, estimator, period, prior, options)


Entrant = dict[str, Any]  # JSON; see `entrant`

WEAK = (0.5, 0.01)  # Gamma prior: half an item in a hundredth of a step, mean 50 per step
LOW = (0.5, 0.5)  # mean 1 per step, with the weight of half a step: low for dense fleets
CERTAINTY, OPTIMISM, THOMPSON, TUNING = (
    f"adaptive-{name}" for name in ("certainty", "optimism", "thompson", "self-tuning")
)
IN_CONTEXT = "in-context"
REFERENCE, FLOOR, CLAIRVOYANT = "whittle", "random", "knows-rates-now"
_BROUGHT = {
    "sums": ("items", *SUMMED),
    "told": ("items", "mean_utility", "decay_rate"),
}
_NOT_OF_THE_ESTIMATOR = ("agent", "estimator", "brought", "prior", "confidence", "name")
_LEAST = 1e-12  # items / time: avoids a division by zero


def entrant(
    agent: str, estimator: str | None = None, brought: str = "items", **options: Any
) -> Entrant:
    """Return an entrant as JSON.

    Arguments:
        agent: a name of `agents.registry.AGENTS`, or `CLAIRVOYANT`.
        estimator: of an adaptive agent, one of `ESTIMATORS`; None for its default.
        brought: what an adaptive agent observes of its crawls, besides whether they were made:
            items, changed, harvest, or sums over the items (for self-tuning and in-context), or
            items and, for in-context, told mean utilities and decay rates.
        options: `prior`, a pair of numbers or of lists, one for each source; `confidence` of
            optimism; the options of the estimator, such as `retention`; and `training` of
            in-context, the settings with which its network is trained.
    """
    kind = AGENTS.get(agent)
    if agent == IN_CONTEXT:
        return {"agent": agent, "estimator": None, "brought": brought, **options}
    if not (isinstance(kind, type) and issubclass(kind, Adaptive)):
        return {"agent": agent}
    if estimator is None and agent != TUNING:
        estimator = "gamma-poisson"
    return {"agent": agent, "estimator": estimator, "brought": brought, **options}


def named(name: str, candidate: Entrant) -> Entrant:
    """Return an entrant under another name than its agent's."""
    return {**candidate, "name": name}


def name_of(job: Job) -> str:
    """Return the name of a job's entrant in records and reports."""
    return str(job["entrant"].get("name", job["entrant"]["agent"]))


def shown(candidate: Entrant, observed: bool = False) -> tuple[str, ...]:
    """Return the features that an entrant observes."""
    value = ("value",) if observed else ()
    if candidate["agent"] == CLAIRVOYANT:
        return (*value, "age")
    if "estimator" not in candidate:
        return (*value, "age", *PARAMETERS)
    harvest = ("harvest",) if candidate["agent"] in (TUNING, IN_CONTEXT) else ()
    brought = _BROUGHT.get(candidate["brought"], (candidate["brought"],))
    if candidate["brought"] != "sums" or candidate["agent"] == IN_CONTEXT:
        brought = (*brought, *harvest)
    parameters = getattr(AGENTS[candidate["agent"]], "parameters", ())
    return (*value, "age", "crawled", *dict.fromkeys(brought), *parameters)


def agent_of(candidate: Entrant, env: CrawlVectorEnv | Task, seed: int = 0) -> Agent:
    """Return an entrant's agent for an environment with the features of `shown`."""
    kind: Any = AGENTS[candidate["agent"]]
    options = {"confidence": candidate["confidence"]} if "confidence" in candidate else {}
    if candidate.get("estimator") is not None:
        task = env if isinstance(env, Task) else env.task
        options["estimator"] = estimator_of(candidate, task.sources.period)
    if "training" in candidate:
        options["weights"] = network_of(json.dumps(candidate["training"]))
    agent: Agent = kind(env, seed=seed, **options)
    return agent


@cache
def network_of(settings: str) -> Network:
    """Return the network of in-context that settings, as JSON, train."""
    from agents.adaptive import training  # torch is imported for such entrants alone

    return training.train(training.Settings(**json.loads(settings)), processes=1, show=len)[0]


def seat(env: CrawlVectorEnv, candidate: Entrant, seed: int) -> Predictor:
    """Return the policy of an entrant in an environment."""
    return Clairvoyant(env) if candidate["agent"] == CLAIRVOYANT else agent_of(candidate, env, seed)


def estimator_of(candidate: Entrant, period: float = 1.0) -> Estimator:
    """Return an entrant's estimator."""
    prior = None
    if "prior" in candidate:
        prior = Posterior(*(np.array(x, dtype=float) for x in candidate["prior"]))
    own = {key: value for key, value in candidate.items() if key not in _NOT_OF_THE_ESTIMATOR}
    return make_estimator(candidate["estimator"], period, prior, **own)


class ExpectedContent:
    """The mean uncollected utility at each source given the crawls and the rates, (B, N).

    X̄ ← αX̄·[not crawled] + Λ(t)(ξ̄/μ)(1 − α): given the rates, arrivals are Poisson, and the
    crawls depend on nothing that arrived since.
    """

    def __init__(self, world: World) -> None:
        fleet = world.sources
        self._value = np.broadcast_to(fleet.content_at(world.age), world.shape).copy()
        self._retention = np.broadcast_to(fleet.retention, world.shape)
        self._inflow = fleet.mean_utility / fleet.decay_rate * fleet.loss

    @property
    def value(self) -> FloatArray:
        """The mean uncollected utility, (B, N)."""
        return self._value

    def crawl(self, picked: IntArray, rate: FloatArray) -> FloatArray:
        """Return the mean harvest of crawls of these cells, (B,); then take one step at these
        rates."""
        average = collected(self._value, picked)
        self._value.reshape(-1)[picked] = 0.0
        self._value *= self._retention
        self._value += rate * self._inflow
        return average


class Clairvoyant(Policy):
    """A reference that reads the arrival rates from the world: the Whittle index of the mean
    uncollected utility given all rates so far, at the rates of the coming step."""

    def __init__(self, env: CrawlVectorEnv) -> None:
        self.task, self._env = env.task, env
        # Fleets are drawn when the environment is reset.
        self._expected: ExpectedContent | None = None
        self._rate = np.zeros(())

    def priority(self, view: ObservationView) -> FloatArray:
        world = self._env.world
        if self._expected is None:
            fleet = world.sources
            columns = fleet.mean_utility, fleet.decay_rate, fleet.cost
            self._arms = UnitArms(*columns, fleet.period)
            self._expected = ExpectedContent(world)
        else:
            self._expected.crawl(self._env.harvest.picked, self._rate)
        self._rate = world.rate
        rate, value = np.maximum(self._rate, _LEAST), self._expected.value
        index = self._arms.index_at(rate, world.age, value, np.ones(1, dtype=bool))
        return graded(index, None)
