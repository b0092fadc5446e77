"""`python -m experiments decay`: what the Whittle index loses where interest is not exponential."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import AgentLike, Rollout, with_features
from agents.policies.base import Environment
from agents.policies.index import Whittle
from agents.registry import AGENTS
from agents.theory.renewal import RenewalArm, renewal_arm
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, CrawlVectorEnv, Sources, Task
from crawl_env.content.utility import DECAYS, EXPONENTIAL, Decay
from crawl_env.fleet.drawn import DrawnFleet
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.fleet.sources import REGIMES
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.evaluation import collected
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy
from ephemeral_crawl.fit.decay import exponential_rate
from experiments.core.data import (
    Across,
    Case,
    Column,
    Data,
    Lines,
    Table,
    mean,
    rounded,
    share,
    versus,
)
from experiments.core.study import Part, PartsStudy, single

# ---------------------------------------------------------------------------------- decay functions

DecaySpec = tuple[str, tuple[float, ...]]  # a name in `DECAYS` and its parameters; JSON

TRUE: DecaySpec = ("exponential", ())
STRETCHED: tuple[DecaySpec, ...] = tuple(("stretched", (beta,)) for beta in (0.8, 0.6, 0.5, 0.4))
LOMAX: tuple[DecaySpec, ...] = tuple(("lomax", (k,)) for k in (8.0, 4.0, 3.0, 2.0, 1.5))
FUNCTIONS = (TRUE, *STRETCHED, *LOMAX)
SEEN_FUNCTIONS = (TRUE, STRETCHED[0], *STRETCHED[2:], LOMAX[1], *LOMAX[3:])
MILD = ("stretched, β = 0.8", "Lomax, k = 4")

# The exponential is fitted over this many mean lives, which is about 24 hours on the recorded front
# page, and at as many ages as in `ephemeral-crawl fit`.
WINDOW, _AGES = 5.0, 49


def decay_function(spec: DecaySpec) -> Decay:
    """Return the decay function of a name and its parameters."""
    return DECAYS[spec[0]](*spec[1])


def label(spec: DecaySpec) -> str:
    """Return the name of a decay function with its parameter.

    >>> label(("lomax", (1.5,)))
    'Lomax, k = 1.5'
    """
    title = {"lomax": "Lomax, k", "stretched": "stretched, β"}.get(spec[0], spec[0])
    return f"{title} = {spec[1][0]:g}" if spec[1] else title


def fitted_rate(decay: Decay) -> float:
    """Return the rate of the exponential nearest to a survival function by least squares over a
    window of z, as `ephemeral-crawl fit` finds it from many items; 1 is the rate with the right
    mean life."""
    z = np.linspace(0.0, WINDOW, _AGES)
    return float(exponential_rate(z, decay.survival(z)))


def fitted(sources: Sources, decay: Decay) -> Sources:
    """Return the fleet with fitted decay rates; arrival rates and utilities are right."""
    rate = sources.decay_rate * fitted_rate(decay)
    return sources.replaced(decay_rate=rate)


# -------------------------------------------------------------------------------------- the measure

RIGHT_MEAN, FITTED, KNOWING = (
    "whittle, right mean life",
    "whittle, fitted exponential",
    "whittle, knows the decay",
)
WHITTLES = (RIGHT_MEAN, FITTED, KNOWING)
UNOBSERVED = (*WHITTLES, "static", "myopic", "oldest-first", "random")  # these use ages only
OBSERVED = (*WHITTLES, "myopic", "random")
# Dense fleets have a twentieth of the items, of 20 times the utility, so that all can be stored.
_GROUPED = {"dense": 20, "sparse": 1}


class AssumedDecay(Whittle):
    """The Whittle index of a fleet whose interest is assumed to decay in a given way.

    Where content is not observed, the index is taken at the source's age: it is exact if the
    assumption is right. Where content is observed, it is the index of a source whose mean content
    has the observed value, as in Theorem 1, which is not exact under any decay function.

    Arguments:
        env: with the feature `value` or `age`.
        fleet: returns the fleet assumed, (N,) or (B, N); it is called at the first step, when
            fleets have been drawn.
        decay: the decay function assumed.
    """

    name = "whittle, assumed decay"

    def __init__(
        self, env: Environment, fleet: Callable[[], Sources], decay: Decay = EXPONENTIAL
    ) -> None:
        self._fleet, self._decay = fleet, decay
        super().__init__(env)

    @cached_property
    def _assumed(self) -> RenewalArm:
        return renewal_arm(self._fleet(), self._decay)

    def arm(self, sources: Sources) -> RenewalArm:
        return self._assumed

    def index_at_age(self, age: FloatArray, sources: Sources) -> FloatArray:
        return self._assumed.index_at_age(age)


def work(job: Job) -> Result:
    """Run a job: its policy on its task, for some seeds.

    Returns the reward per step of each run (S,) and, of the policy that knows the decay where
    content is not observed, the bound of each run's fleet (S,), else "". Where content is not
    observed the reward is the expected one of the crawls that were made.
    """
    decay, seeds, task = decay_function(job["decay"]), job["seeds"], job["columns"]
    arguments = _arguments(task, decay)
    rollout = Rollout(_agent(task, decay), arguments, seeds, task["seed"])
    env, reward = rollout.env, np.zeros(seeds)
    arm = renewal_arm(env.world.sources, decay)
    for step in range(job["warmup"] + job["steps"]):
        age = env.world.age.astype(np.float64)
        gain = rollout.step()
        if step >= job["warmup"]:
            if not task["observed"]:
                gain = collected(arm.mean_content(age), env.harvest.picked)
            reward += gain
    result: Result = {"reward": (reward / job["steps"]).tolist(), "bound": ""}
    if task["policy"] == KNOWING and not task["observed"]:
        problem = Task(**{**arguments, "arrivals": Arrivals(decay=decay)})
        bound = task_bound(problem, env.world.sources).bound
        result["bound"] = np.broadcast_to(bound, seeds).tolist()
    return result


def _arguments(task: Mapping[str, Any], decay: Decay) -> dict[str, Any]:
    fleet, observed = task["fleet"], task["observed"]
    arguments = {
        "sources": DrawnFleet(100, fleet, grouped=_GROUPED[fleet]) if fleet in REGIMES else fleet,
        "budget": task["budget"],
        "arrivals": Arrivals(decay=decay) if observed else "deterministic",
        "observed": observed,
        "features": ("value" if observed else "age", *PARAMETERS),
        "horizon": None,
    }
    return with_features(AGENTS.get(task["policy"], Whittle), arguments)[1]


def _agent(task: Mapping[str, Any], decay: Decay) -> AgentLike:
    name = task["policy"]

    def assuming(env: CrawlVectorEnv) -> AssumedDecay:
        def fleet() -> Sources:
            sources = env.world.sources
            return fitted(sources, decay) if name == FITTED else sources

        return AssumedDecay(env, fleet, decay if name == KNOWING else EXPONENTIAL)

    return assuming if name in WHITTLES else name


# ----------------------------------------------------------------------------------------- the jobs

BUDGETS = (2, 10, 30)  # crawls per step for 100 sources


def jobs(study: Any) -> list[Job]:
    """Return all jobs, the longest first: those with the most uncollected items."""
    functions = {label(spec): spec for spec in FUNCTIONS}

    def job(fleet: str, budget: int, observed: bool, decay: DecaySpec, policy: str) -> Job:
        return {
            "columns": {
                "fleet": fleet,
                "budget": budget,
                "observed": observed,
                "policy": policy,
                "decay": label(decay),
                "seed": study.seed,
            },
            "decay": functions[label(decay)],
            "seeds": 1 if fleet == "table1" else study.seeds,
            "steps": study.steps // 4 if observed else study.steps,
            "warmup": study.warmup // 4 if observed else study.warmup,
        }

    return [
        *(
            job(fleet, m, True, decay, policy)
            for m in BUDGETS
            for fleet in ("dense", "sparse")
            for decay in reversed(SEEN_FUNCTIONS)
            for policy in OBSERVED
        ),
        *(
            job(fleet, m, False, decay, policy)
            for fleet, budgets in (("dense", BUDGETS), ("table1", (1, 2, 3)))
            for m in budgets
            for decay in FUNCTIONS
            for policy in UNOBSERVED
        ),
    ]


# --------------------------------------------------------------------------------------- the report

_loss = versus(statistics.loss, "reward", policy=KNOWING)
# Of random fleets.
_SITUATIONS: dict[str, Case] = {
    "not observed": {"fleet": "dense", "observed": False},
    "observed, dense": {"fleet": "dense", "observed": True},
    "observed, sparse": {"fleet": "sparse", "observed": True},
}


def _losses(data: Data) -> list[tuple[float, dict[str, str]]]:
    """Return the loss of both assumptions in each case of random fleets, with the case."""
    return [
        (_loss(data, case).mean, case)
        for situation in _SITUATIONS.values()
        for policy in (RIGHT_MEAN, FITTED)
        for case in data.cases("decay", "budget", **situation, policy=policy)
    ]


def claim(data: Data) -> str:
    """Return what the assumption costs close to the exponential, and far from it."""
    losses = _losses(data)
    usual = max(loss for loss, case in losses if case["decay"] in MILD)
    worst, where = max(losses, key=lambda pair: pair[0])
    return (
        "Assuming that interest decays exponentially where it does not costs the Whittle policy at "
        f"most {usual:.1%} of its reward close to the exponential (β ≥ .8, k ≥ 4), and up to "
        f"{worst:.1%} far from it ({where['decay']}, M = {where['budget']})."
    )


def functions_table(report: Report, data: Data) -> None:
    """Add the decay functions and the exponentials that would be fitted to them."""
    z = np.linspace(0.0, 1.0, 10_001)
    rows = []
    for spec in FUNCTIONS:
        decay = decay_function(spec)
        half_life = float(np.interp(0.5, decay.survival(z)[::-1], z[::-1]))
        rest = [f"{1 - float(decay.integrated_survival(x)):.1%}" for x in (1.0, 3.0, 10.0, 30.0)]
        rows.append([label(spec), f"{half_life:.2f}", *rest, f"{fitted_rate(decay):.2f}"])
    later = [f"utility left after {x} mean lives" for x in (1, 3, 10, 30)]
    columns = ["decay function", "half-life", *later, "fitted rate / μ"]
    report.table("The decay functions; mean life = 1", columns, rows)


_KNOWING = {"policy": KNOWING}
_LOSSES = tuple(
    Column(title, _loss, of={"policy": policy})
    for title, policy in (("loss, right mean life", RIGHT_MEAN), ("loss, fitted", FITTED))
)


PART = Part(
    jobs=jobs,
    work=work,
    content=(
        *(
            Lines(
                "Loss of assuming exponential decay, relative to knowing the decay function, "
                f"N = 100, {name}, with 95 % intervals.",
                x="decay",
                y=_loss,
                line="budget",
                columns="policy",
                where=situation,
                panels=(RIGHT_MEAN, FITTED),
                order=[label(named) for named in (*reversed(STRETCHED), TRUE, *LOMAX)],
                labels=("", "loss, %"),
                scale=100,
                level=0,
                title="M = {}",
            )
            for name, situation in _SITUATIONS.items()
        ),
        "The agents of this project assume that interest decays exponentially. Here it does not, "
        "and the Whittle policy is compared with one that knows the decay function, on the same "
        "arrivals: once with the right mean life (so that u* is right), once with the exponential "
        "that `ephemeral-crawl fit` would find. All decay functions have the same mean life 1/μ, "
        f"and the exponential is fitted over {WINDOW:g} of them: with a fitted rate of r·μ, u* is "
        "underestimated by the factor r.",
        functions_table,
        "Not observed: each crawl is counted at its expectation, u*∫R over the age: nothing is "
        "drawn at random. Bound: the relaxed bound under the true decay function; no policy that "
        f"does not observe content exceeds it. Loss: relative to the reward of “{KNOWING}”, with "
        "95 % intervals (over fleets, of which there is another one in each run).",
        Table(
            "Content not observed: {fleet}, M = {budget}",
            {"decay": "decay"},
            (
                Column(
                    "knows the decay, of the bound", mean("reward", "bound"), of={"policy": KNOWING}
                ),
                *_LOSSES,
                Across("policy", (_loss,), share, ("static", "myopic", "oldest-first", "random")),
            ),
            each=("fleet", "budget"),
            where={"observed": False},
        ),
        "Observed: all uncollected content is, with exponential ξ, and items are drawn one by one; "
        "“dense” has a twentieth of the items of `Sources.random`, each of 20 times the utility. "
        f"“{KNOWING}” takes the index of a source whose mean content has the observed value; this "
        "is not exact under any of the decay functions. No bound is known.",
        Table(
            "Content observed: {fleet}, M = {budget}",
            {"decay": "decay"},
            (
                Column("knows, reward", mean("reward"), rounded, _KNOWING),
                *_LOSSES,
                Column("myopic", _loss, of={"policy": "myopic"}),
                Column("random", _loss, share, {"policy": "random"}),
            ),
            each=("fleet", "budget"),
            where={"observed": True},
        ),
    ),
    claim=claim,
)


@dataclass(kw_only=True)
class DecayStudy(PartsStudy, ParallelStudy):
    """What the Whittle index loses where interest does not decay exponentially, as it assumes, by
    decay function, budget, and whether content is observed. Takes some four minutes."""

    title: ClassVar[str] = "What the Whittle index loses if interest does not decay exponentially"
    parts: ClassVar[Mapping[str, Part]] = single(PART)

    seeds: int = 10
    """Random fleets; the arrivals are the same for all policies."""
    steps: int = 1200
    """Steps measured in each run; a quarter of them where content is observed."""
    warmup: int = 400
    """Steps before them that are left out."""
    seed: int = 0
    """Seed of the fleets and the arrivals."""
