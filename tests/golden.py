"""The golden net: numbers that the project computes, an array for each concept, so that a change of
form changes no number.

The arrays of a known state lie in `golden.npz`; the command says which entries differ from them,
and by how much:

    python -m tests.golden                        # compare all; exit code 1 where some differ
    python -m tests.golden --only table learner   # entries whose names contain one of these words
    python -m tests.golden --renew table          # record them anew: where a change is meant

Processors differ in the last bits of what numpy and torch compute, so numbers are compared with a
tolerance, which is larger for what is learnt.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import agents
from agents.adaptive.learner import ThompsonLearner
from agents.evaluation import aggregate, statistics
from agents.evaluation.rollout import Rollout, evaluate
from agents.inference import CrawlOutcome, make_estimator, shrinkage
from agents.learning import LEARNERS
from agents.policies.lagrangian import best_rate, gains, table_of
from agents.theory.frequencies import static_frequencies, static_reward
from agents.theory.multiplier import BudgetMultiplier
from agents.theory.observed import ObservedArm, solve_arm
from agents.theory.relaxation import net_reward
from agents.theory.renewal import renewal_arm
from agents.theory.shot_noise import Content, one_item
from agents.theory.task_bound import task_bound
from crawl_env import (
    Arrivals,
    CrawlEnv,
    CrawlVectorEnv,
    DailyCycle,
    DecayCurves,
    Drift,
    Hawkes,
    ItemLog,
    Jumps,
    Sources,
    Task,
    Trace,
)
from crawl_env.content.utility import DECAYS, UTILITIES, Lognormal, make_decay, make_distribution
from ephemeral_crawl.fit import checks, decay
from ephemeral_crawl.replay.hindsight import Hindsight
from ephemeral_crawl.replay.play import play as play_back
from ephemeral_crawl.replay.split import Log

FILE = Path(__file__).with_suffix(".npz")
DATA = Path(__file__).parents[1] / "ephemeral_crawl" / "data"
TOLERANCE = 1e-6
LEARNT = 1e-3

Compute = Callable[[], Any]
ENTRIES: dict[str, tuple[Compute, float]] = {}


def add(name: str, compute: Compute, tolerance: float = TOLERANCE) -> None:
    assert name not in ENTRIES, name
    ENTRIES[name] = compute, tolerance


def entry(name: str) -> Callable[[Compute], Compute]:
    """Return a decorator of the function that computes the results of an entry."""

    def added(compute: Compute) -> Compute:
        add(name, compute)
        return compute

    return added


# ----------------------------------------------------------------------------------------- fleets


def _fleet(**limits: Any) -> Sources:
    return Sources(
        arrival_rate=[3.0, 0.8, 1.5, 0.4, 6.0, 0.2, 1.0],
        mean_utility=[1.0, 4.0, 0.6, 2.5, 0.3, 9.0, 1.2],
        decay_rate=[0.4, 0.1, 0.25, 0.05, 0.7, 0.15, 0.3],
        **limits,
    )


FLEETS = {
    **{name: Sources.preset(name) for name in ("table1", "fleet-f", "recovering-10")},
    "dense": Sources.random(12, 11, "dense"),
    "sparse": Sources.random(12, 11, "sparse"),
    "costs": Sources.preset("mixed-costs"),
    "delays": _fleet(crawl_delay=[0, 2, 3, 0, 1, 5, 2.5], hosts=["a", "a", "b", "", "b", "b", "c"]),
    "capacities": _fleet(capacity=[2, np.inf, 5, 1, 20, np.inf, 3]),
    "failures": _fleet(failure_rate=[0, 0.3, 0.1, 0.5, 0, 0.2, 0.9], cost=[1, 2, 1, 1, 3, 1, 2]),
    "all-limits": _fleet(
        period=0.5,
        cost=[1, 1.5, 1, 0.7, 2, 1, 1],
        crawl_delay=[0, 1, 2, 0, 0, 1.5, 0],
        capacity=[3, np.inf, 5, 2, np.inf, np.inf, 8],
        failure_rate=[0.1, 0, 0.2, 0, 0.4, 0.05, 0],
        hosts=["a", "a", "", "b", "b", "", "a"],
    ),
    "batch": Sources.stack([Sources.random(6, seed, "dense") for seed in range(3)]),
}


def drawn_fleet(rng: np.random.Generator) -> Sources:
    """Draw a fleet, as an environment does at every reset."""
    return Sources.random(6, rng, "dense")


@cache
def log_of(name: str, span: float = 60.0) -> ItemLog:
    """Return a small log of what a fleet published; every other item has a recorded curve."""
    rng, one = np.random.default_rng(17), FLEETS[name]
    counts = rng.poisson(np.minimum(one.arrival_rate, 5.0) * span)
    source = np.repeat(np.arange(len(one)), counts)
    n = source.size
    worth = one.mean_utility[source] * rng.gamma(2.0, 0.5, n)
    published = np.sort(rng.uniform(0.0, span, n))
    lengths = np.where(np.arange(n) % 2, 4, 0)
    ages = np.tile([0.0, 0.7, 2.0, 9.0], n // 2)
    remaining = np.sort(rng.random((n // 2, 4)))[:, ::-1].copy()
    remaining[:, 0] = 1.0
    curves = DecayCurves(np.cumsum([0, *lengths]), ages, remaining.ravel())
    return ItemLog(one.names, source, published, worth, 0.0, span, curves=curves)


@cache
def example_log() -> ItemLog:
    return ItemLog.from_csv(DATA / "example-log.csv")


# ----------------------------------------------------------------------------------- trajectories

KNOWN = (
    *("value", "age", "crawled", "harvest"),
    *("arrival_rate", "mean_utility", "decay_rate", "cost"),
)
SUMS = (
    *("value", "age", "crawled", "harvest", "items", "harvest_number", "harvest_age"),
    *("harvest_age_squared", "harvest_log", "harvest_age_log"),
)
FEATURES: dict[str, tuple[str, ...]] = {
    "value": ("value",),
    "age": ("age",),
    "known": KNOWN,
    "state": ("value", "age", "crawled", "harvest", "balance", "available", "failed"),
    "items": ("age", "crawled", "harvest", "items"),
    "changed": ("age", "crawled", "changed"),
    "sums": SUMS,
    "everything": (*KNOWN, *SUMS[4:], "balance", "available", "failed", "changed"),
}


class Case(NamedTuple):
    """A task and who plays it, in words."""

    sources: str  # of `FLEETS`, or "drawn"
    budget: str
    rule: str  # step, average
    arrivals: str
    seen: str  # seen, unseen, half-seen
    features: str  # of `FEATURES`
    start: str
    horizon: str  # endless, or a number
    mode: str  # alone, or how rows are reset
    agent: str


# Every value of every part at least once; arrivals that vary, items and limits more often.
CASES = """
table1 1 step deterministic seen known full 17 NextStep whittle-exact
table1 2 average poisson-items unseen changed random endless SameStep adaptive-optimism
sparse 3.5 average poisson-cycle half-seen state empty endless SameStep whittle-exact
drawn 0.6 average poisson-cycle half-seen state random 17 alone random
delays 2 step deterministic half-seen age empty endless alone whittle
failures 0.6 average log unseen sums random endless NextStep oldest-first
dense 0.6 average poisson-lomax seen age empty endless NextStep static
dense 2 step poisson-hawkes-items seen sums fresh 17 alone myopic
drawn 3.5 step poisson-hawkes-items seen items random 17 NextStep oldest-first
capacities 3.5 step poisson-items unseen sums empty 17 alone fixed
delays 0.6 average deterministic unseen state fresh 17 NextStep miniflux
failures 1 step poisson-lognormal seen state full 17 SameStep nutch
dense 3.5 average log seen everything random endless SameStep adaptive-certainty
all-limits 2 step log half-seen known full endless SameStep adaptive-self-tuning
failures 2 step poisson-drift-items half-seen everything random endless SameStep miniflux
capacities 1 average poisson-hawkes-items half-seen everything fresh 17 SameStep random
sparse 2 step poisson-items seen everything fresh 17 NextStep lagrangian
all-limits 3.5 step poisson-jumps-items seen sums random endless SameStep static
all-limits 3.5 average poisson-lomax-items seen everything empty 17 alone adaptive-thompson
drawn 3.5 step poisson-constant-lomax-items unseen everything empty 17 SameStep lagrangian
costs 3.5 average poisson-gamma unseen value full endless NextStep whittle
sparse 1 average poisson-exponential-stretched half-seen value fresh endless alone whittle
"""


def arguments_of(case: Case) -> dict[str, Any]:
    is_drawn = case.sources == "drawn"
    n = 6 if is_drawn else len(FLEETS[case.sources])
    observed: dict[str, Any] = {"seen": True, "unseen": False, "half-seen": np.arange(n) % 2 == 0}
    return {
        "sources": drawn_fleet if is_drawn else FLEETS[case.sources],
        "budget": float(case.budget),
        "budget_rule": case.rule,
        "arrivals": Trace(log_of(case.sources)) if case.arrivals == "log" else case.arrivals,
        "observed": observed[case.seen],
        "features": FEATURES[case.features],
        "horizon": None if case.horizon == "endless" else int(case.horizon),
        "start": case.start,
        "per_host": 2 if case.sources == "all-limits" else 1,
    }


def what_waits(env: Any) -> list[Any]:
    """Return the final state of an environment, and what its generator would draw next."""
    world = env.world
    state = [world.value, world.age, world.belief, world.items, world.harvested, world.rate]
    return [*state, env.np_random.random()]


def of_features(observation: np.ndarray) -> np.ndarray:
    """Return a sum for each feature, in which each source has a weight of its own."""
    return np.arange(1.0, observation.shape[-2] + 1) @ observation.astype(np.float64)


def played(case: Case) -> list[Any]:
    """Return what is seen, chosen and earned in 25 steps of a case, and what waits at the end."""
    arguments, alone = arguments_of(case), case.mode == "alone"
    env: Any = (
        CrawlEnv(**arguments) if alone else CrawlVectorEnv(3, autoreset_mode=case.mode, **arguments)
    )
    agent = agents.make(case.agent, env, seed=5)
    observation, _ = env.reset(seed=3)
    values, state, start, over = [of_features(observation)], None, None, False
    for _ in range(25):
        if alone and over:
            observation, _ = env.reset()
            state = None
        action, state = agent.predict(observation, state, start)
        observation, reward, _, now_over, _ = env.step(action)
        if not alone:  # where the next observation is the first of an episode
            first = over if case.mode == "NextStep" else now_over
            start = first if np.any(first) else None
        over = now_over
        values += [np.sort(action, axis=-1)[..., -2:], of_features(observation), reward, over]
    return [values, what_waits(env)]


for line in CASES.split("\n")[1:-1]:
    add(f"trajectory: {line}", partial(played, Case(*line.split())))


# ----------------------------------------------------------------------------- indexing engines


def indexed(sources: str, arrivals: Any, **engine: Any) -> Any:
    env = CrawlVectorEnv(
        3,
        sources=FLEETS[sources],
        budget=2.0,
        arrivals=arrivals,
        engine=engine,
        features=("age", "backlog"),
        horizon=17,
    )
    values, rng = [of_features(env.reset(seed=6)[0])], np.random.default_rng(2)
    for _ in range(40):
        observation, reward, *_ = env.step(rng.random((3, env.task.n), dtype=np.float32))
        values += [of_features(observation), reward, list(env.ledger)]
    return values


FIFO: dict[str, Any] = {"rate": 2.3, "capacity": 7, "threshold": 0.1}
BY_VALUE: dict[str, Any] = {"rate": 3, "capacity": 5, "discipline": "value", "service": "poisson"}
add("engine: first in, first out", partial(indexed, "dense", "poisson-items", **FIFO))
add("engine: by value, bursts", partial(indexed, "dense", "poisson-hawkes", **BY_VALUE))
add("engine: power law", partial(indexed, "sparse", "poisson-gamma-lomax", **BY_VALUE))
add("engine: all limits", partial(indexed, "all-limits", "poisson-items", **FIFO))
add("engine: a log", partial(indexed, "dense", Trace(log_of("dense")), **BY_VALUE))


# ---------------------------------------------------------------------- content by law of arrivals


def arriving(features: tuple[str, ...], *processes: Any) -> Any:
    values = []
    for process in processes:
        for start in ("empty", "random") if "items" in features else ("full", "random"):
            fleet = FLEETS["capacities" if "items" in features else "dense"]
            env = CrawlVectorEnv(2, fleet, 2.0, arrivals=process, features=features, start=start)
            values.append(of_features(env.reset(seed=8)[0]))
            for _ in range(6):
                observation, reward, *_ = env.step(np.tile(np.linspace(-1, 1, len(fleet)), (2, 1)))
                values += [of_features(observation), reward]
            values.append(env.np_random.random())
    return values


RATES = ("", "-drift", "-jumps", "-cycle", "-hawkes")
LAWS = [f"-{law}{how}" for law in UTILITIES for how in ("", "-stretched", "-lomax")]
OBJECTS: dict[str, dict[str, Any]] = {
    "drift without reversion": {"rate": Drift(0.05, 0.0)},
    "jumps": {"rate": Jumps(0.2, "lognormal"), "utility": "gamma"},
    "cycle with a phase": {"rate": DailyCycle(0.9, 12, 3.0)},
    "bursts of bursts": {"rate": Hawkes(0.8, 0.3), "utility": "lognormal", "decay": "lomax"},
    "narrow lognormal": {"utility": Lognormal(0.3)},
}
for what, shown in (("total", ("value",)), ("items", FEATURES["items"])):
    end = "-items" * (what == "items")
    add(f"arrivals: rates, {what}", partial(arriving, shown, *(f"poisson{r}{end}" for r in RATES)))
    add(f"arrivals: laws, {what}", partial(arriving, shown, *(f"poisson{r}{end}" for r in LAWS)))
    objects = [Arrivals(**parts, sampler=what) for parts in OBJECTS.values()]
    add(f"arrivals: objects, {what}", partial(arriving, shown, *objects))


# ---------------------------------------------------------------------------- indices and bounds


def grid(one: Sources) -> np.ndarray:
    share = np.array([0.0, 1e-9, 0.01, 0.1, 0.35, 0.7, 0.99, 1.3])
    return share.reshape(-1, *[1] * one.ceiling.ndim) * one.ceiling


def ages(one: Sources) -> np.ndarray:
    return np.array([0.0, 1, 2, 3, 5, 9, 24, 100, 1e4]).reshape(-1, *[1] * one.cost.ndim)


def charges(one: Sources) -> list[np.ndarray]:
    shape = (1,) if one.cost.ndim == 1 else (len(one.cost), 1)
    return [np.full(shape, price) for price in (0.0, 0.1, 1.0, 7.5, 100.0)]


def budgets(one: Sources) -> tuple[float, ...]:
    most = float(one.cost.sum(axis=-1).max())
    return (1.0, 0.2 * most, 0.5 * most, 1.1 * most)


def discounted(one: Sources) -> Any:
    if one.fails or one.is_capped:
        return []
    return [
        [agents.whittle_index(grid(one), one, d), agents.index_at_age(ages(one), one, d)]
        for d in (0.5, 0.99)
    ]


def cycles(one: Sources) -> Any:
    arm, some = renewal_arm(one), ages(one)[1:-1]
    return [f(some) for f in (arm.cycle_reward, arm.cycle_length, arm.crawl_rate, arm.index_at_age)]


def relaxed_by_decay(one: Sources) -> Any:
    return [] if one.is_capped else [agents.relaxation(one, 2.0, 1, make_decay(d)) for d in DECAYS]


def gained(one: Sources) -> Any:
    table = table_of(one)
    return [gains(grid(one), table, charge, best_rate(one, charge)) for charge in charges(one)[:3]]


TABLES: dict[str, Callable[[Sources], Any]] = {
    "derived parameters": lambda f: [f.retention, f.loss, f.ceiling, f.inflow, f.delay, f.host_of],
    "content at age": lambda f: f.content_at(ages(f)),
    "Whittle index of value": lambda f: agents.whittle_index(grid(f), f),
    "Whittle index at age": lambda f: agents.index_at_age(ages(f), f),
    "Whittle index, discounted": discounted,
    "myopic index": lambda f: agents.myopic_index(grid(f), f),
    "gain of crawling now under a charge": gained,
    "best net reward under a charge": lambda f: [
        [net_reward(f, charge), best_rate(f, charge)] for charge in charges(f)
    ],
    "relaxed bound and price": lambda f: [agents.relaxation(f, b, 1) for b in budgets(f)],
    "relaxed bound by decay": relaxed_by_decay,
    "static frequencies": lambda f: [static_frequencies(f, b) for b in budgets(f)],
    "reward of static frequencies": lambda f: [
        static_reward(f, static_frequencies(f, b)) for b in budgets(f)
    ],
    "cycles": cycles,
}
for what, table in TABLES.items():
    add(f"table: {what}", partial(lambda compute: [*map(compute, FLEETS.values())], table))


@entry("optimum: best rewards")
def _() -> Any:
    some = {name: one.select([0, 1, 2]) for name, one in FLEETS.items() if name != "batch"}
    names = ("dense", "delays", "capacities", "failures", "costs")
    few = [agents.optimal_reward(some[name], 3.0 if name == "costs" else 1, 1e-9) for name in names]
    return [*few, *(agents.optimal_reward(FLEETS["table1"], b, 1e-9) for b in (1.0, 2.0))]


def bounded(observed: bool) -> Any:
    bounds = []
    for name in ("table1", "sparse", "costs", "all-limits", "failures"):
        unseen: tuple[str, ...] = (
            *("deterministic", "poisson-lomax", "poisson-stretched", "poisson-drift"),
        )
        laws = [f"poisson-{law}" for law in UTILITIES] if name == "table1" else ["poisson"]
        half = np.arange(len(FLEETS[name])) % 2 == 0
        if name == "all-limits":  # whose capacities need single items
            laws, unseen = ["poisson-items"], ("deterministic", "poisson-lomax-items")
        for arrivals in laws if observed else (*laws, *unseen):
            for seen in (True, half) if observed else (False,):
                for budget, rule in ((1.0, "step"), (2.5, "average")):
                    task = Task(
                        FLEETS[name], budget, budget_rule=rule, arrivals=arrivals, observed=seen
                    )
                    bounds.append(task_bound(task)[:2])
    drawn = Task(drawn_fleet, 2.0, arrivals="poisson", observed=observed)
    return [*bounds, task_bound(drawn, FLEETS["batch"])[:2]]


add("bound: tasks where content is not seen", partial(bounded, False))
add("bound: tasks where content is seen, or half", partial(bounded, True))


@entry("price: multipliers of a budget on average")
def _() -> Any:
    values = []
    for name, observed in (("costs", False), ("failures", False), ("table1", True)):
        task = Task(FLEETS[name], 1.7, budget_rule="average", arrivals="poisson", observed=observed)
        for index in (agents.whittle_index, agents.myopic_index):
            values.append(BudgetMultiplier(task, index)(FLEETS[name]))
    return values


@entry("arm: moments of one item and of an epoch")
def _() -> Any:
    values = []
    for law in UTILITIES:
        item = one_item(make_distribution(law))
        for items, decay_rate in ((0.01, 0.1), (1.0, 0.5), (30.0, 0.05)):
            content = Content.of_items(items, decay_rate, item)
            short = np.linspace(0.0, 20.0, 9)[:, None] - np.arange(content.mass.size) * content.step
            values.append(np.maximum(short, 0.0) @ content.mass)
    return values


@entry("arm: exact index of a source")
def _() -> Any:
    arms = [
        numbers(solve_arm(items, decay_rate, make_distribution(law))[:5])
        for law in UTILITIES
        for items, decay_rate in ((0.3, 0.2), (4, 1))
    ]
    return [arm[::8] for arm in arms]


@entry("arm: exact index of a fleet, half seen")
def _() -> Any:
    values = []
    for one in (FLEETS["table1"], FLEETS["sparse"]):
        half = np.arange(len(one)) % 2 == 0
        arm = ObservedArm(one, half, make_distribution("exponential"))
        values += [arm.index(grid(one)), arm.net_reward(np.array([0.5])), arm.max_multiplier()]
    return values


# ---------------------------------------------------------------------------- agents that learn

ESTIMATORS = ("gamma-poisson", "fleet-prior", "forgetting", "changed")


def estimated(name: str, period: float) -> Any:
    estimator, shape = make_estimator(name, period), (2, 5)
    rng, state = np.random.default_rng(9), estimator.begin(shape)
    rate, gap = np.linspace(0.05, 2.0, 5), np.full(shape, period)
    for _ in range(60):
        crawled = rng.random(shape) < 0.3
        items = rng.poisson(rate * gap).astype(np.float64)
        outcome = CrawlOutcome.of(gap.copy(), items, crawled, items > 0, period)
        state = estimator.update(state, outcome)
        gap = np.where(crawled, period, gap + period)
    law = estimator.posterior(state)
    return [law.mean, law.deviation, law.quantile(0.9), law.quantile(0.05)]


@entry("adaptive: estimators of rates")
def _() -> Any:
    return [estimated(name, period) for name in ESTIMATORS for period in (1.0, 0.25)]


def believed(agent: str, features: str) -> Any:
    """Return what an agent believes of an unseen fleet after 60 steps, and does next."""
    env = CrawlVectorEnv(
        2, FLEETS["sparse"], 2.0, arrivals="poisson-items", observed=False,
        features=FEATURES[features],
    )  # fmt: skip
    player = agents.make(f"adaptive-{agent}", env, seed=5)
    observation, _ = env.reset(seed=6)
    state = None
    for _ in range(60):
        action, state = player.predict(observation, state)
        observation = env.step(action)[0]
    law = player.posterior(state)
    return [action, law.mean, law.deviation]


for agent in ("certainty", "optimism", "thompson", "self-tuning"):
    for shown in ("items", "sums"):
        add(f"adaptive: {agent} that sees {shown}", partial(believed, agent, shown), 1e-5)

SMALL: dict[str, Any] = {
    "n_steps": 8,
    "n_epochs": 2,
    "n_minibatches": 2,
    "train_freq": 8,
    "buffer_size": 60,
    "learning_starts": 9,
    "batch_size": 8,
    "gradient_steps": 2,
    "target_update_interval": 3,
    "n_quantiles": 5,
    "hidden": 4,
}


def learnt(name: str, rows: int, steps: int, features: tuple[str, ...], **settings: Any) -> Any:
    """Return what a learner plays after a short training; of Stable-Baselines3 a small one."""
    kind: Any = ThompsonLearner if name == "adaptive-thompson" else LEARNERS[name]
    names = {field.name for field in fields(kind.Settings)}
    own = {key: value for key, value in settings.items() if key in names}
    env = CrawlVectorEnv(
        rows, FLEETS["table1"], 2.0, arrivals="poisson", features=features, horizon=50
    )
    pupil = kind(env, kind.Settings(**own), seed=1)
    pupil.learn(steps)
    observation, _ = env.reset(seed=12)
    actions = []
    for _ in range(8):
        action = pupil.predict(observation)[0]
        actions.append(action)
        observation, reward, *_ = env.step(np.tile([1.0, 0.5, 0.0, -1.0], (rows, 1)))
    return [actions, reward, pupil.steps]


AGES = ("age", "crawled", "harvest")
for name in (
    *("whittle-q", "lagrange-q", "lspe", "wiql", "wiql-ucb", "plug-in", "uc-whittle"),
    *("deeptop", "qwinn"),
):
    add(f"learner: {name}", partial(learnt, name, 4, 120, AGES), LEARNT)
add("learner: neurwin", partial(learnt, "neurwin", 8, 200, AGES), LEARNT)
add("learner: adaptive-thompson", partial(learnt, "adaptive-thompson", 1, 200, AGES), LEARNT)
for name in ("equivariant-ppo", "equivariant-index"):
    add(f"learner: {name}", partial(learnt, name, 4, 96, KNOWN), LEARNT)
for name in ("ppo", "a2c", "sac", "td3", "dqn", "qr-dqn", "maskable-ppo"):
    for network in ("equivariant", "default"):
        small = {**SMALL, "network": network}
        add(
            f"learner: {name}, {network}",
            partial(learnt, name, 3, 32, ("value", "age", "decay_rate"), **small),
            LEARNT,
        )


# ------------------------------------------------------------- evaluations, fits and recordings

TASKS: dict[str, dict[str, Any]] = {
    "table1, deterministic": {"sources": FLEETS["table1"], "budget": 2},
    "costs, on average": {
        "sources": FLEETS["costs"],
        "budget": 4,
        "budget_rule": "average",
        "arrivals": "poisson",
        "observed": False,
    },
    "all limits": {
        "sources": FLEETS["all-limits"],
        "budget": 2,
        "arrivals": "poisson-lomax-items",
        "observed": False,
        "per_host": 2,
    },
    "fleets drawn anew": {
        "sources": drawn_fleet,
        "budget": 2,
        "arrivals": "poisson",
        "features": KNOWN,
    },
}
PLAYERS = ("whittle", "lagrangian", "static", "random", "nutch", "adaptive-thompson", "clairvoyant")


def evaluated(task: dict[str, Any], *players: str, **settings: Any) -> Any:
    values = []
    for player in players:
        run = evaluate(player, task, steps=40, warmup=10, seeds=3, seed=2, **settings)
        values.append([run.reward, run.cost, run.never, run.delay, run.frequency])
    return values


for what, task in TASKS.items():
    add(f"evaluation: {what}", partial(evaluated, task, *PLAYERS))
add(
    "evaluation: discounted",
    partial(evaluated, TASKS["table1, deterministic"], "whittle", discount=0.99),
)


@entry("statistics: means, differences, scores and aggregates")
def _() -> Any:
    rng = np.random.default_rng(0)
    one, other, third = rng.normal(5, 1, 20), rng.normal(4, 1, 20), rng.normal(1, 1, 20)
    tasks = [rng.random(n) for n in (8, 20, 5)]
    against = [rng.random(n) for n in (8, 20, 5)]
    return [
        *(statistics.mean(one), statistics.difference(one, other), statistics.ratio(one, other)),
        *(statistics.score(other, third, one), statistics.score(other, one, one)),
        *(statistics.loss(other, one), aggregate.interquartile_mean(np.stack([one, other]))),
        *(aggregate.iqm(tasks), aggregate.profile(tasks, np.linspace(0, 1, 11))),
        aggregate.improvement(tasks, against),
        *(str(statistics.mean(one)), str(statistics.mean(one * 1e5))),
    ]


@entry("fit: rates, utilities and checks of a log")
def _() -> Any:
    log = example_log()
    counts = np.bincount(log.source, minlength=len(log.names))
    return [
        shrinkage.rates(counts, log.span),
        shrinkage.utilities(log.source, log.utility, counts.size),
        shrinkage.shrunk(np.array([1.0, 3, 0, 2.5]), np.array([0.1, 0.9, np.inf, 0.4])),
        *(check(log) for check in (checks.dispersion, checks.gaps, checks.drift, checks.cycle)),
        decay.measure(log_of("fleet-f"), 9.0),
    ]


@entry("replay: the example log, its bound in hindsight, and agents")
def _() -> Any:
    log = Log(items=DATA / "example-log.csv", half_life=f"{np.log(2) / 0.12}h")
    split = log.split(None, 1.0, 200)
    hindsight = Hindsight(split.trace, split.fleet, split.steps)
    values = [split.fleet, split.published, split.steps, [hindsight.bound(b) for b in (0.5, 2.0)]]
    for rule in ("step", "average"):
        for agent in ("whittle", "miniflux", "adaptive-self-tuning", "clairvoyant"):
            arguments = {
                "sources": split.fleet,
                "budget": 2.0,
                "budget_rule": rule,
                "arrivals": split.trace,
                "observed": agent == "clairvoyant",
                "start": "empty",
            }
            values.append(play_back(Rollout(agent, arguments, 1, 0), split.trace, split.steps))
    return values


# ------------------------------------------------------------------------- numbers and the command


def numbers(results: Any) -> np.ndarray:
    """Return all numbers in nested results as one array; of text, the codes of characters."""
    return np.concatenate([np.zeros(0), *_arrays(results)])


def _arrays(x: Any) -> list[np.ndarray]:
    if x is None:
        return []
    if isinstance(x, str):
        return [np.array([ord(character) for character in x], dtype=np.float64)]
    if isinstance(x, Sources):
        x = [
            getattr(x, name) for name in ("arrival_rate", "mean_utility", "decay_rate", "cost")
        ] + [*(x.crawl_delay, x.capacity, x.failure_rate, x.period, list(x.names), list(x.hosts))]
    if is_dataclass(x):
        x = [getattr(x, field.name) for field in fields(x)]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, list | tuple):
        return [array for part in x for array in _arrays(part)]
    return [np.ravel(np.asarray(x, dtype=np.float64))]


def computed(name: str) -> np.ndarray:
    """Return the numbers of an entry."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return numbers(ENTRIES[name][0]())


def difference(name: str, values: np.ndarray, recorded: np.ndarray) -> str:
    """Return how the numbers of an entry differ from those recorded; nothing if they do not."""
    if values.shape != recorded.shape:
        return f"{name}: {values.size} numbers instead of {recorded.size}"
    tolerance = ENTRIES[name][1]
    scale = np.max(np.abs(recorded[np.isfinite(recorded)]), initial=0.0)
    off = ~np.isclose(values, recorded, tolerance, tolerance * 1e-3 * scale, equal_nan=True)
    if not off.any():
        return ""
    with np.errstate(all="ignore"):
        by = np.where(off, np.abs(values - recorded) / np.abs(recorded), 0.0)
    worst = int(np.argmax(np.where(np.isnan(by), np.inf, by)))
    return (
        f"{name}: {off.sum()} of {off.size} numbers differ, by up to {by[worst]:.1e} of them: "
        f"number {worst} was {recorded[worst]:.9g} and is {values[worst]:.9g}"
    )


def recorded() -> dict[str, np.ndarray]:
    """Return the arrays of `golden.npz` by the names of their entries."""
    with np.load(FILE) as arrays:
        return {name: arrays[name] for name in arrays.files}


def main() -> int:
    """Compare or renew entries; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[""])
    parser.add_argument("--renew", nargs="+", metavar="WORD", help="record these entries anew")
    options = parser.parse_args()
    words = options.renew or options.only
    names = [name for name in ENTRIES if any(word in name for word in words)]
    records = recorded() if FILE.exists() else {}
    arrays = {name: computed(name) for name in names}
    lines = [
        difference(name, array, records[name]) if name in records else f"{name}: new"
        for name, array in arrays.items()
    ]
    lines = [line for line in lines if line]
    print(*lines, f"{len(arrays)} entries, {len(lines)} differ", sep="\n")
    if options.renew:
        entries = {name: array for name, array in {**records, **arrays}.items() if name in ENTRIES}
        np.savez_compressed(FILE, **dict(sorted(entries.items())))
        return 0
    return 1 if lines else 0


if __name__ == "__main__":
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    sys.exit(main())
