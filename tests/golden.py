"""The golden net: hashes of what the project computes, so that a change of form changes no number.

Every entry is a name and the hash of the exact bytes of some results. The hashes of a known state
lie in `golden.json`; the command says which entries differ from them:

    python tests/golden.py                        # check all; exit code 1 where some differ
    python tests/golden.py --only tables files    # check these groups
    python tests/golden.py --renew 'rendering/*'  # renew entries, by name, prefix or pattern
    python tests/golden.py --list                 # names of all entries, nothing computed

Names say what was computed in words that outlive renamed classes and arguments. What makes fleets,
tasks, environments and agents stands in a few functions below, up to `play`: code that is renamed
is edited there.

Numbers depend on the processor in their last bits (numpy and torch choose their loops by it), so
the hashes hold for the kind of processor that is recorded with them; see `fingerprints`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fnmatch
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_suffix(".json")
DATA = ROOT / "ephemeral_crawl" / "data"
if __name__ == "__main__" and not __package__:  # run as a file: its folder must not come first
    sys.path[0] = str(ROOT)

Entry = tuple[str, Callable[[], Any]]  # its name, and what computes the results to be hashed


# ------------------------------------------------------------------------------------------ hashes


def digest(*results: Any) -> str:
    """Return the hash of results: numbers, arrays, texts, and containers of them.

    Names do not count: of a dictionary the values are hashed in the order of their hashes, of a
    dataclass or named tuple the fields in turn.
    """
    return hashlib.sha256(_bytes(results)).hexdigest()[:16]


def _bytes(x: Any) -> bytes:
    if x is None or isinstance(x, bool | np.bool_ | int | str):
        kind = "bool" if isinstance(x, np.bool_) else type(x).__name__
        return _block(kind, str(x).encode())
    if isinstance(x, bytes):
        return _block("bytes", x)
    if isinstance(x, float | np.generic):
        x = np.asarray(x)
    if type(x).__module__.startswith("torch"):
        x = x.detach().cpu().numpy()
    if isinstance(x, np.ndarray):
        if x.dtype == object:
            return _bytes(x.tolist())
        if x.dtype.kind == "f":
            x = np.where(np.isnan(x), x.dtype.type(np.nan), x)  # whatever its sign
        return _block(f"{x.dtype.str}{x.shape}", np.ascontiguousarray(x).tobytes())
    if isinstance(x, dict):
        return _block(
            "dict", b"".join(sorted(hashlib.sha256(_bytes(v)).digest() for v in x.values()))
        )
    if isinstance(x, list | tuple | set):
        items = sorted(x) if isinstance(x, set) else x
        return _block("list", b"".join(map(_bytes, items)))
    if hasattr(x, "__getstate__") and is_fleet(x):
        return _bytes(fleet_numbers(x))
    if is_dataclass(x):
        return _bytes([getattr(x, field.name) for field in fields(x)])
    raise TypeError(f"{type(x).__name__} {x!r} has no bytes to hash")


def _block(kind: str, content: bytes) -> bytes:
    return f"{kind}:{len(content)}:".encode() + content


# ------------------------------------------------- the project's things: to be edited when renamed


def is_fleet(x: Any) -> bool:
    from crawl_env import Sources

    return isinstance(x, Sources)


def fleet_numbers(fleet: Any) -> list[Any]:
    """Return all that describes a fleet."""
    return [
        fleet.arrival_rate,
        fleet.mean_utility,
        fleet.decay_rate,
        fleet.cost,
        fleet.crawl_delay,
        fleet.capacity,
        fleet.failure_rate,
        fleet.period,
        list(fleet.names),
        list(fleet.hosts),
    ]


def make_fleet(rate: Any, utility: Any, decay: Any, **limits: Any) -> Any:
    """Return a fleet; limits: cost, period, names, delay, capacity, failure, hosts."""
    from crawl_env import Sources

    ours = {"delay": "crawl_delay", "failure": "failure_rate"}
    given = {ours.get(name, name): value for name, value in limits.items()}
    return Sources(arrival_rate=rate, mean_utility=utility, decay_rate=decay, **given)


def random_fleet(n: int, seed: Any, regime: str) -> Any:
    from crawl_env import Sources

    return Sources.random(n, seed, regime)


_RATE = [3.0, 0.8, 1.5, 0.4, 6.0, 0.2, 1.0]
_UTILITY = [1.0, 4.0, 0.6, 2.5, 0.3, 9.0, 1.2]
_DECAY = [0.4, 0.1, 0.25, 0.05, 0.7, 0.15, 0.3]
_LIMITS: dict[str, dict[str, Any]] = {
    "delays": {"delay": [0, 2, 3, 0, 1, 5, 2.5], "hosts": ["a", "a", "b", "", "b", "b", "c"]},
    "capacities": {"capacity": [2, np.inf, 5, 1, 20, np.inf, 3]},
    "failures": {"failure": [0.0, 0.3, 0.1, 0.5, 0.0, 0.2, 0.9], "cost": [1, 2, 1, 1, 3, 1, 2]},
    "all-limits": {
        "period": 0.5,
        "cost": [1, 1.5, 1, 0.7, 2, 1, 1],
        "delay": [0, 1, 2, 0, 0, 1.5, 0],
        "capacity": [3, np.inf, 5, 2, np.inf, np.inf, 8],
        "failure": [0.1, 0.0, 0.2, 0.0, 0.4, 0.05, 0.0],
        "hosts": ["a", "a", "", "b", "b", "", "a"],
    },
    "silent": {"names": list("abcdefg")},
}


@cache
def fleet(name: str) -> Any:
    """Return a fleet by the name that entries give it."""
    from crawl_env import Sources

    if name in ("dense", "sparse"):
        return random_fleet(12, 11, name)
    if name == "costs":
        return Sources.preset("mixed-costs")
    if name == "batch":
        return Sources.stack([random_fleet(6, seed, "dense") for seed in range(3)])
    if name == "silent":
        return make_fleet([0.0, *_RATE[1:]], _UTILITY, _DECAY, **_LIMITS[name])
    if name in _LIMITS:
        return make_fleet(_RATE, _UTILITY, _DECAY, **_LIMITS[name])
    if name.startswith("few-"):  # the first three of a longer one
        return fleet(name.removeprefix("few-")).select([0, 1, 2])
    return Sources.preset(name)


def drawn_fleet(rng: np.random.Generator) -> Any:
    """Draw a fleet, as an environment does at every reset."""
    return random_fleet(6, rng, "dense")


@cache
def log_of(name: str, span: float = 60.0, curves: bool = True) -> Any:
    """Return a small log of what a fleet published; every other item has a recorded curve."""
    from crawl_env import DecayCurves, ItemLog

    rng, one = np.random.default_rng(17), fleet(name)
    counts = rng.poisson(np.minimum(one.arrival_rate, 5.0) * span)
    source = np.repeat(np.arange(len(one)), counts)
    n = source.size
    worth = one.mean_utility[source] * rng.gamma(2.0, 0.5, n)
    published = np.sort(rng.uniform(0.0, span, n))
    told = None
    if curves:
        lengths = np.where(np.arange(n) % 2, 4, 0)
        ages = np.concatenate([[0.0, 0.7, 2.0, 9.0]] * int((lengths > 0).sum()))
        left = np.sort(rng.random((ages.size // 4, 4)))[:, ::-1].copy()
        left[:, 0] = 1.0
        told = DecayCurves(np.cumsum([0, *lengths]), ages, left.ravel())
    return ItemLog(one.names, source, published, worth, 0.0, span, curves=told)


FEATURES: dict[str, tuple[str, ...]] = {
    "value": ("value",),
    "age": ("age",),
    "known": (
        *("value", "age", "crawled", "harvest"),
        *("arrival_rate", "mean_utility", "decay_rate", "cost"),
    ),
    "state": ("value", "age", "crawled", "harvest", "balance", "available", "failed"),
    "items": ("age", "crawled", "harvest", "items"),
    "changed": ("age", "crawled", "changed"),
    "sums": (
        *("value", "age", "crawled", "harvest", "items", "harvest_number", "harvest_age"),
        *("harvest_age_squared", "harvest_log", "harvest_age_log"),
    ),
    "everything": (
        *("value", "age", "crawled", "harvest", "items", "arrival_rate", "mean_utility"),
        *("decay_rate", "cost", "balance", "available", "failed", "changed", "harvest_number"),
        *("harvest_age", "harvest_age_squared", "harvest_log", "harvest_age_log"),
    ),
}
# With these, random arrivals have to be drawn item by item: other numbers than without them.
ITEMISED = ("items", "changed", "sums", "everything")


class Case(NamedTuple):
    """A task and who plays it, in words."""

    sources: str  # of `fleet`, or "drawn"
    budget: str
    rule: str  # every-epoch, average
    arrivals: str
    seen: str  # seen, unseen, half-seen
    features: str  # of `FEATURES`
    start: str
    scale: str  # raw, relaxed
    end: str  # endless, or 37-epochs
    face: str  # alone, rows, rows-same-step
    action: str
    agent: str

    @property
    def name(self) -> str:
        sampled = self.features in ITEMISED and self.arrivals != "deterministic"
        return " ".join(self) + " (items-sampled)" * sampled


def task_arguments(case: Case) -> dict[str, Any]:
    """Return the arguments of the environment of a case."""
    sources: Any = drawn_fleet if case.sources == "drawn" else fleet(case.sources)
    n = 6 if case.sources == "drawn" else len(sources)
    arrivals: Any = case.arrivals
    if arrivals.startswith("log"):
        from crawl_env import Trace

        log = log_of(case.sources, curves="curves" in arrivals)
        arrivals = Trace(log, random_start=arrivals != "log-from-the-beginning")
    half: Any = np.arange(n) % 2 == 0
    return {
        "sources": sources,
        "budget": float(case.budget.removeprefix("M=")),
        "budget_rule": "average" if case.rule == "average" else "step",
        "arrivals": arrivals,
        "observed": {"seen": True, "unseen": False, "half-seen": half}[case.seen],
        "features": FEATURES[case.features],
        "horizon": None if case.end == "endless" else int(case.end.split("-")[0]),
        "start": case.start,
        "per_host": 2 if case.sources == "all-limits" else 1,
    }


# Arrivals by the names that entries give them.
ARRIVALS = (
    *("deterministic", "poisson"),
    *(f"poisson-{law}" for law in ("constant", "exponential", "lognormal", "gamma")),
    *("poisson-stretched", "poisson-lomax"),
    *(
        f"poisson-{law}-{decay}"
        for law in ("constant", "exponential", "lognormal", "gamma")
        for decay in ("stretched", "lomax")
    ),
    *("poisson-drift", "poisson-jumps", "poisson-cycle", "poisson-bursts"),
)


def sampled(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an environment with arrivals that draw items where it needs them."""
    name, sources = arguments.get("arrivals"), arguments.get("sources")
    if not (isinstance(name, str) and name.startswith("poisson")):
        return arguments
    shown = {*arguments.get("features", ())}
    counted = bool(shown & {"items", "changed"}) or any(x.startswith("harvest_") for x in shown)
    items = counted or (is_fleet(sources) and sources.is_capped)
    name = name.replace("bursts", "hawkes") + "-items" * items
    return {**arguments, "arrivals": name}


def alone(**arguments: Any) -> Any:
    """Return one environment."""
    from crawl_env import CrawlEnv

    return CrawlEnv(**sampled(arguments))


def rows_of(rows: int, **arguments: Any) -> Any:
    """Return a vector environment."""
    from crawl_env import CrawlVectorEnv

    return CrawlVectorEnv(rows, **sampled(arguments))


def make_task(**arguments: Any) -> Any:
    """Return what an environment with these arguments poses."""
    from crawl_env import Task

    return Task(**sampled(arguments))


def make_agent(name: str, env: Any, seed: int = 5, **options: Any) -> Any:
    import agents

    return agents.make(name, env, seed=seed, **options)


def evaluated(agent: Any, arguments: dict[str, Any], **settings: Any) -> list[Any]:
    """Return reward, cost, sources never visited, delay and frequency of an agent's runs."""
    from agents.evaluation.rollout import evaluate

    run = evaluate(agent, sampled(arguments), **settings)
    return [run.reward, run.cost, run.never, run.delay, run.frequency]


def what_waits(env: Any) -> list[Any]:
    """Return the final state of an environment, and what its generator would draw next."""
    world = env.world
    return [
        world.value,
        world.age,
        world.belief,
        world.items,
        world.harvested,
        world.rate,
        env.np_random.random(),
    ]


def relaxed_bounds(env: Any, case: Case) -> Any:
    """Return the bound by which rewards are divided, of every environment's fleet."""
    from agents import relaxation

    fleet, task = env.world.sources, env.unwrapped.task
    bound = np.asarray(relaxation(fleet, task.budget, task.per_host).bound)
    bound = np.where(bound > 0, bound, 1.0)
    return float(bound.reshape(-1)[0]) if case.face == "alone" else bound


def play(case: Case, steps: int) -> list[Any]:
    """Return the observations and rewards of a case, and what waits at the end."""
    arguments = task_arguments(case)
    if case.face == "alone":
        env = alone(**arguments)
    else:
        mode = "SameStep" if case.face == "rows-same-step" else "NextStep"
        env = rows_of(3, autoreset_mode=mode, **arguments)
    agent = make_agent(case.agent, env)
    observation, _ = env.reset(seed=3)
    told, state, start, over = [observation], None, None, False
    scaled_by, scale = None, 1.0
    for _ in range(steps):
        if case.face == "alone" and over:
            observation, _ = env.reset()
            told.append(observation)
            state = None
        action, state = agent.predict(observation, state, start)
        if case.scale == "relaxed" and env.world.sources is not scaled_by:
            scaled_by, scale = env.world.sources, relaxed_bounds(env, case)
        observation, reward, _, now_over, _ = env.step(action)
        reward = reward / scale if case.scale == "relaxed" else reward
        if case.face == "rows":
            start = over if np.any(over) else None
        elif case.face == "rows-same-step":
            start = now_over if np.any(now_over) else None
        over = now_over
        told += [np.asarray(action), observation, reward, over]
    return [told, what_waits(env)]


# --------------------------------------------------------------------------------------- the cases

# Sources, budget, rule, arrivals, what is seen, features, start, scale, end, face, action, agent:
# nearly all pairs of what goes together, found once by a search and kept.
CASES = """
table1 M=1 every-epoch deterministic seen known full raw 37-epochs rows priority whittle-exact
table1 M=2 average poisson unseen everything fresh relaxed endless rows-same-step priority adaptive-thompson
sparse M=3.5 average poisson-cycle half-seen state empty raw endless rows-same-step priority whittle-exact
drawn M=0.6 average poisson-cycle half-seen state random relaxed 37-epochs alone priority random
delays M=2 every-epoch deterministic half-seen age empty raw endless alone priority whittle
failures M=0.6 average log-curves unseen sums random relaxed endless rows priority oldest-first
dense M=0.6 average poisson-lomax seen age empty raw endless rows priority static
dense M=2 every-epoch poisson-bursts seen sums fresh raw 37-epochs alone priority myopic
drawn M=3.5 every-epoch poisson-bursts seen items random raw 37-epochs rows priority oldest-first
sparse M=2 every-epoch poisson-lognormal unseen value full relaxed 37-epochs alone priority whittle-exact
delays M=1 every-epoch poisson-lomax half-seen known fresh relaxed 37-epochs rows-same-step priority whittle
all-limits M=1 every-epoch poisson-cycle seen age fresh raw 37-epochs rows-same-step priority fixed
sparse M=1 average poisson-drift unseen items empty raw 37-epochs rows-same-step priority adaptive-optimism
capacities M=0.6 average poisson-jumps seen value full raw endless rows priority myopic
costs M=1 average poisson-lomax unseen state random relaxed endless alone priority fixed
costs M=3.5 average log-curves seen changed fresh raw 37-epochs rows priority adaptive-optimism
all-limits M=0.6 average poisson half-seen changed empty raw endless rows priority random
capacities M=3.5 every-epoch poisson unseen sums empty relaxed 37-epochs alone priority fixed
delays M=0.6 average deterministic unseen state fresh relaxed 37-epochs rows priority miniflux
failures M=1 every-epoch poisson-lognormal seen state full raw 37-epochs rows-same-step priority nutch
dense M=3.5 average log-curves seen everything random relaxed endless rows-same-step priority adaptive-certainty
all-limits M=2 every-epoch log-curves half-seen known full raw endless rows-same-step priority adaptive-self-tuning
drawn M=1 every-epoch poisson-jumps unseen known empty relaxed 37-epochs alone priority adaptive-self-tuning
failures M=3.5 average poisson-lognormal half-seen known full relaxed endless rows priority nutch
failures M=2 every-epoch poisson-drift half-seen everything random relaxed endless rows-same-step priority miniflux
costs M=0.6 average poisson-jumps half-seen changed random raw endless rows-same-step priority whittle-exact
dense M=2 average poisson-drift half-seen items random raw endless rows priority adaptive-self-tuning
capacities M=1 average poisson-bursts half-seen everything fresh relaxed 37-epochs rows-same-step priority random
costs M=0.6 average poisson-lognormal half-seen value empty raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson seen everything fresh raw 37-epochs rows priority lagrangian
sparse M=1 every-epoch poisson-bursts unseen changed random raw endless rows-same-step priority lagrangian
delays M=3.5 every-epoch log-curves half-seen items empty raw endless alone priority whittle-exact
costs M=1 every-epoch poisson-drift seen sums fresh raw endless alone priority adaptive-self-tuning
dense M=2 average poisson-cycle half-seen state full raw 37-epochs rows priority oldest-first
sparse M=3.5 every-epoch poisson-lomax seen sums empty raw 37-epochs alone priority miniflux
table1 M=1 average poisson-lognormal half-seen everything empty relaxed endless alone priority static
delays M=0.6 average poisson-bursts half-seen known full relaxed 37-epochs rows priority fixed
dense M=2 every-epoch poisson-cycle unseen known random relaxed 37-epochs rows-same-step priority static
table1 M=3.5 average poisson-bursts half-seen sums random raw endless rows-same-step priority nutch
costs M=2 average poisson-cycle seen value fresh relaxed endless alone priority lagrangian
dense M=3.5 every-epoch deterministic seen value fresh relaxed 37-epochs rows-same-step priority lagrangian
delays M=1 every-epoch poisson-lognormal seen sums random relaxed 37-epochs rows-same-step priority myopic
all-limits M=3.5 every-epoch poisson-lognormal seen known fresh relaxed endless alone priority adaptive-thompson
table1 M=1 average poisson-jumps unseen state fresh raw 37-epochs rows-same-step priority adaptive-certainty
drawn M=3.5 every-epoch poisson-drift seen everything fresh relaxed 37-epochs rows-same-step priority whittle
table1 M=3.5 average poisson-cycle half-seen items random raw endless rows priority myopic
failures M=2 average poisson-bursts half-seen value empty relaxed 37-epochs alone priority lagrangian
sparse M=3.5 average poisson-jumps seen age full raw endless rows-same-step priority random
capacities M=2 every-epoch poisson-lognormal seen known full relaxed endless alone priority adaptive-optimism
capacities M=2 every-epoch poisson unseen changed random raw 37-epochs rows priority whittle
all-limits M=1 every-epoch poisson-jumps seen items fresh raw endless rows-same-step priority miniflux
delays M=1 average poisson-jumps seen everything random relaxed 37-epochs alone priority oldest-first
sparse M=2 every-epoch deterministic seen items random raw endless rows-same-step priority adaptive-thompson
capacities M=2 every-epoch poisson-lomax unseen changed empty raw endless rows-same-step priority oldest-first
sparse M=2 average poisson-drift half-seen known random raw endless alone priority adaptive-certainty
all-limits M=2 every-epoch poisson-bursts seen state empty raw endless rows priority adaptive-certainty
costs M=2 every-epoch poisson-bursts unseen age fresh raw endless alone priority whittle-exact
dense M=3.5 every-epoch poisson-lognormal unseen value fresh raw 37-epochs rows priority random
dense M=0.6 average poisson unseen known empty relaxed 37-epochs alone priority nutch
capacities M=2 every-epoch poisson-drift half-seen state full raw 37-epochs alone priority static
drawn M=2 average poisson-cycle unseen known empty relaxed endless rows-same-step priority miniflux
failures M=0.6 average poisson-lomax unseen changed empty raw 37-epochs rows priority adaptive-thompson
costs M=2 average deterministic unseen known full raw endless rows priority oldest-first
all-limits M=1 every-epoch poisson seen value random raw endless rows priority static
sparse M=1 average log-curves unseen age random raw 37-epochs rows priority oldest-first
failures M=2 average deterministic unseen changed fresh raw endless alone priority static
dense M=2 every-epoch poisson-jumps unseen everything random relaxed endless rows priority fixed
dense M=1 every-epoch poisson-lognormal half-seen changed random raw 37-epochs alone priority adaptive-optimism
table1 M=3.5 every-epoch poisson-lomax unseen known full relaxed endless alone priority lagrangian
sparse M=0.6 average poisson-lomax seen everything empty relaxed endless alone priority myopic
failures M=3.5 every-epoch poisson unseen age random raw endless alone priority myopic
table1 M=3.5 every-epoch poisson-drift unseen value fresh raw endless rows priority random
drawn M=0.6 average deterministic unseen known empty raw 37-epochs alone priority adaptive-optimism
table1 M=0.6 average poisson-lognormal half-seen changed empty raw 37-epochs rows-same-step priority adaptive-certainty
all-limits M=3.5 every-epoch poisson-jumps seen sums random raw endless rows-same-step priority static
delays M=2 average poisson-cycle unseen everything empty relaxed 37-epochs alone priority nutch
sparse M=3.5 every-epoch poisson-drift seen everything fresh relaxed endless rows priority nutch
table1 M=2 every-epoch poisson-drift half-seen age empty raw endless rows-same-step priority oldest-first
all-limits M=2 every-epoch poisson-lomax seen items empty raw endless rows-same-step priority random
costs M=3.5 average log-curves seen items random raw endless alone priority static
all-limits M=3.5 average poisson-cycle unseen known full relaxed endless rows priority whittle
table1 M=3.5 every-epoch poisson half-seen state empty raw 37-epochs alone priority adaptive-self-tuning
table1 M=1 every-epoch poisson-cycle seen sums empty raw 37-epochs rows priority adaptive-optimism
table1 M=2 average log-curves unseen value full raw 37-epochs rows priority fixed
costs M=0.6 average poisson-lognormal seen items empty raw endless alone priority fixed
sparse M=3.5 every-epoch poisson unseen items random raw endless rows priority static
drawn M=1 average poisson-lognormal seen value full raw endless alone priority oldest-first
delays M=2 every-epoch poisson-lognormal seen age random raw endless alone priority lagrangian
all-limits M=1 every-epoch poisson-drift half-seen everything random raw 37-epochs rows-same-step priority whittle-exact
dense M=0.6 average poisson-jumps half-seen state empty relaxed 37-epochs rows priority whittle
drawn M=3.5 average poisson-lomax unseen sums empty relaxed 37-epochs rows priority nutch
table1 M=0.6 average poisson-bursts unseen known full relaxed endless rows priority miniflux
sparse M=3.5 average log-curves half-seen state full relaxed endless alone priority adaptive-thompson
all-limits M=3.5 every-epoch poisson unseen state fresh relaxed 37-epochs rows priority oldest-first
failures M=2 every-epoch poisson-cycle seen sums empty raw 37-epochs rows-same-step priority adaptive-certainty
costs M=0.6 average poisson-lognormal unseen everything empty raw 37-epochs alone priority adaptive-self-tuning
failures M=3.5 average poisson-jumps seen sums empty relaxed 37-epochs rows priority adaptive-optimism
dense M=1 average poisson-cycle half-seen sums fresh raw endless alone priority adaptive-thompson
capacities M=3.5 every-epoch poisson seen known full relaxed 37-epochs rows priority whittle-exact
all-limits M=3.5 every-epoch deterministic half-seen known fresh relaxed endless alone priority myopic
failures M=2 average log-curves half-seen items fresh raw 37-epochs rows priority whittle
failures M=3.5 every-epoch log-curves unseen known full relaxed 37-epochs rows-same-step priority random
costs M=0.6 average poisson-drift unseen state full relaxed 37-epochs rows priority lagrangian
dense M=3.5 average poisson-lomax half-seen value fresh raw 37-epochs alone priority whittle-exact
delays M=2 every-epoch poisson-bursts seen everything random raw endless rows priority adaptive-optimism
delays M=3.5 average poisson-lomax half-seen known full relaxed endless rows-same-step priority adaptive-certainty
capacities M=3.5 average poisson-jumps seen items fresh raw 37-epochs alone priority nutch
delays M=3.5 average poisson unseen state random relaxed endless rows-same-step priority adaptive-optimism
table1 M=0.6 average poisson-drift seen changed random raw endless rows-same-step priority myopic
capacities M=2 average deterministic half-seen items fresh raw 37-epochs rows priority adaptive-certainty
capacities M=1 every-epoch log-curves unseen age random raw 37-epochs rows-same-step priority lagrangian
delays M=3.5 average poisson-bursts unseen value random relaxed 37-epochs alone priority static
failures M=3.5 every-epoch poisson-jumps seen sums fresh raw endless alone priority whittle-exact
delays M=3.5 average poisson-drift half-seen items random raw endless rows-same-step priority adaptive-thompson
costs M=2 every-epoch log-curves seen state empty relaxed endless rows priority myopic
costs M=3.5 every-epoch poisson half-seen state random relaxed 37-epochs rows priority random
capacities M=3.5 every-epoch poisson-cycle unseen sums empty raw 37-epochs rows priority miniflux
drawn M=1 every-epoch poisson seen sums empty relaxed 37-epochs alone priority random
sparse M=3.5 every-epoch deterministic half-seen age full raw 37-epochs rows priority fixed
sparse M=3.5 average poisson-lomax seen everything empty relaxed endless rows-same-step priority adaptive-self-tuning
table1 M=3.5 every-epoch poisson-bursts half-seen value fresh relaxed endless alone priority whittle
all-limits M=2 every-epoch poisson-jumps unseen items random raw endless alone priority lagrangian
sparse M=3.5 average log-curves unseen sums fresh raw 37-epochs alone priority whittle
drawn M=3.5 average poisson-jumps unseen everything random relaxed endless alone priority adaptive-thompson
dense M=3.5 every-epoch poisson half-seen state empty relaxed endless rows-same-step priority miniflux
delays M=3.5 average deterministic half-seen known random raw endless rows priority adaptive-self-tuning
drawn M=3.5 every-epoch poisson-drift half-seen known fresh raw endless alone priority fixed
sparse M=2 every-epoch poisson-cycle unseen changed empty raw endless rows-same-step priority fixed
capacities M=3.5 every-epoch poisson-bursts half-seen state random raw endless rows-same-step priority adaptive-self-tuning
failures M=3.5 average poisson-cycle half-seen sums fresh relaxed 37-epochs alone priority adaptive-self-tuning
delays M=3.5 every-epoch poisson seen changed random raw endless rows-same-step priority random
drawn M=2 every-epoch deterministic unseen changed empty raw endless rows-same-step priority random
table1 M=2 average poisson-cycle unseen sums fresh relaxed endless rows-same-step priority lagrangian
costs M=3.5 every-epoch poisson-lognormal unseen everything fresh raw 37-epochs rows priority miniflux
drawn M=2 every-epoch poisson unseen everything random raw endless rows-same-step priority adaptive-certainty
costs M=1 average poisson-bursts unseen changed empty raw 37-epochs rows-same-step priority adaptive-thompson
drawn M=3.5 every-epoch poisson-lomax unseen everything empty relaxed 37-epochs rows-same-step priority lagrangian
costs M=2 every-epoch log-curves unseen sums empty raw 37-epochs rows priority nutch
all-limits M=2 average deterministic unseen items fresh raw 37-epochs rows-same-step priority nutch
failures M=3.5 every-epoch poisson-lognormal seen state random relaxed endless alone priority fixed
costs M=3.5 every-epoch poisson-lomax unseen state full relaxed 37-epochs rows priority adaptive-certainty
all-limits M=3.5 average poisson-lomax seen everything empty raw 37-epochs alone priority adaptive-optimism
drawn M=3.5 every-epoch poisson-cycle half-seen everything empty relaxed 37-epochs alone priority whittle-exact
capacities M=3.5 every-epoch poisson-lognormal half-seen sums empty raw endless rows priority adaptive-thompson
drawn M=2 every-epoch poisson-bursts unseen age fresh raw 37-epochs rows-same-step priority random
drawn M=3.5 every-epoch poisson-lognormal half-seen known full raw endless alone priority myopic
sparse M=2 every-epoch deterministic seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch deterministic unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-constant seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-constant unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-exponential seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-exponential unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-lognormal seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-lognormal unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-gamma seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-gamma unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-stretched seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-stretched unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-lomax seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-lomax unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-constant-stretched seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-constant-stretched unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-constant-lomax seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-constant-lomax unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-exponential-stretched seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-exponential-stretched unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-exponential-lomax seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-exponential-lomax unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-lognormal-stretched seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-lognormal-stretched unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-lognormal-lomax seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-lognormal-lomax unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-gamma-stretched seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-gamma-stretched unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-gamma-lomax seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-gamma-lomax unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-drift seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-drift unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-jumps seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-jumps unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-cycle seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-cycle unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch poisson-bursts seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch poisson-bursts unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch log seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch log unseen items random raw 37-epochs rows priority whittle
sparse M=2 every-epoch log-from-the-beginning seen value random raw 37-epochs alone priority whittle
dense M=2 every-epoch log-from-the-beginning unseen items random raw 37-epochs rows priority whittle
"""  # noqa: E501
MULTIPLYING = ("whittle-exact", "adaptive-self-tuning")  # agents that multiply matrices


def cases(action: str, multiplying: bool = False) -> Iterator[tuple[int, Case]]:
    """Yield the cases of a kind of action with their numbers."""
    for number, line in enumerate(CASES.split("\n")[1:-1]):
        case = Case(*line.split())
        if case.action == action and (case.agent in MULTIPLYING) == multiplying:
            yield number, case


def trajectories(action: str, multiplying: bool, group: str) -> Iterator[Entry]:
    for number, case in cases(action, multiplying):
        steps = 100 if case.face == "alone" else 60
        yield f"{group}/{number:03d} {case.name}", lambda c=case, s=steps: play(c, s)


def trajectory() -> Iterator[Entry]:
    yield from trajectories("priority", False, "trajectory")


def trajectory_products() -> Iterator[Entry]:
    yield from trajectories("priority", True, "trajectory-products")


# -------------------------------------------------------------------------------- faces of a crawl


def faces() -> Iterator[Entry]:
    plain = Case(
        *[
            "dense",
            "M=3",
            "every-epoch",
            "poisson",
            "seen",
            "known",
            "fresh",
            "raw",
            "-",
            "-",
            "-",
            "-",
        ]
    )
    base = task_arguments(plain._replace(end="37-epochs", action="priority"))

    def one_by_one() -> Any:
        from crawl_env.envs.wrappers import SequentialSelection

        env = SequentialSelection(alone(**base))
        rng, told = np.random.default_rng(1), [env.reset(seed=4)[0]]
        for _ in range(60):
            told += [env.action_masks(), *env.step(int(rng.integers(12)))[:4]]
        return told

    def for_stable_baselines() -> Any:
        from crawl_env.envs.sb3 import CrawlVecEnv

        env = CrawlVecEnv(num_envs=3, **base)
        env.seed(4)
        rng, told = np.random.default_rng(1), [env.reset()]
        for _ in range(50):
            env.step_async(rng.random((3, 12), dtype=np.float32))
            told += env.step_wait()[:3]
        return told

    def restored(rows: bool) -> Any:
        env = rows_of(3, **base) if rows else alone(**base)
        env.reset(seed=4)
        rng, shape = np.random.default_rng(1), (3, 12) if rows else (12,)
        for _ in range(20):
            env.step(rng.random(shape, dtype=np.float32))
        state = env.get_state()
        ahead = [env.step(rng.random(shape, dtype=np.float32))[:2] for _ in range(9)]
        back = env.set_state(state)
        again = [env.step(rng.random(shape, dtype=np.float32))[:2] for _ in range(9)]
        return [ahead, back, again, what_waits(env)]

    def set_at_reset() -> Any:
        env = alone(**base)
        told = [env.reset(seed=4, options={"value": np.arange(12.0), "age": np.arange(1.0, 13)})[0]]
        return told + [env.step(np.ones(12, dtype=np.float32))[:2] for _ in range(5)]

    def reset_by_mask() -> Any:
        env = rows_of(3, autoreset_mode="Disabled", **base)
        told = [env.reset(seed=4)[0]]
        for _ in range(5):
            told += env.step(np.ones((3, 12), dtype=np.float32))[:2]
        mask = np.array([True, False, True])
        return [*told, env.reset(options={"reset_mask": mask})[0], what_waits(env)]

    def whole_numbers() -> Any:
        env = alone(**base)
        env.reset(seed=4)
        return [env.step(np.arange(12) % 3)[:2] for _ in range(9)]

    def subsets() -> Any:
        from crawl_env.envs.wrappers import SubsetAction

        posed = {"sources": fleet("all-limits")}
        return [
            SubsetAction(alone(budget=budget, budget_rule=rule, **posed)).subsets
            for budget in (1.0, 2.0, 3.5)
            for rule in ("step", "average")
        ]

    yield "faces/one source after the other", one_by_one
    yield "faces/as a vector environment of Stable-Baselines3", for_stable_baselines
    yield "faces/state taken and restored, alone", lambda: restored(False)
    yield "faces/state taken and restored, rows", lambda: restored(True)
    yield "faces/values and ages set at reset", set_at_reset
    yield "faces/rows reset by a mask", reset_by_mask
    yield "faces/priorities that are whole numbers", whole_numbers
    yield "faces/tables of subsets", subsets


def engine() -> Iterator[Entry]:
    from crawl_env import CrawlVectorEnv, Trace

    fifo = {"rate": 2.3, "capacity": 7, "threshold": 0.1}
    value = {"rate": 3, "capacity": 5, "discipline": "value", "service": "poisson"}
    cases = {
        "exponential decay": ("dense", "poisson-items"),
        "power law": ("sparse", "poisson-gamma-lomax"),
        "bursts": ("dense", "poisson-hawkes"),
        "all limits": ("all-limits", "poisson-items"),
        "a log": ("dense", Trace(log_of("dense"))),
    }

    def played(sources: str, arrivals: Any, made: Any) -> Any:
        env = CrawlVectorEnv(
            3,
            sources=fleet(sources),
            budget=2.0,
            arrivals=arrivals,
            engine=made,
            features=("age", "backlog"),
            horizon=17,
        )
        told, rng = [env.reset(seed=6)[0]], np.random.default_rng(2)
        for _ in range(50):
            told += env.step(rng.random((3, env.task.n), dtype=np.float32))[:2]
            told.append(list(env.ledger))
        return told

    for name, (sources, arrivals) in cases.items():
        for made in (fifo, value):
            key = f"engine/{name}, {made.get('discipline', 'fifo')}"
            yield key, lambda s=sources, a=arrivals, m=made: played(s, a, m)


def rendering() -> Iterator[Entry]:
    def text(name: str, budget: float) -> Any:
        env = alone(sources=fleet(name), budget=budget, arrivals="poisson", render_mode="ansi")
        agent = make_agent("whittle", env)
        observation, _ = env.reset(seed=2)
        shown = [env.render()]
        for _ in range(10):
            observation = env.step(agent.predict(observation)[0])[0]
            shown.append(env.render())
        return shown

    for name, budget in (
        ("table1", 2.0),
        ("costs", 4.0),
        ("all-limits", 2.0),
        ("hacker-news", 9.0),
    ):
        yield f"rendering/text of {name}", lambda n=name, b=budget: text(n, b)


# ------------------------------------------------------------------------------- tables of indices

FLEETS = (
    *("table1", "fleet-f", "recovering-10", "hacker-news", "dense", "sparse", "costs", "delays"),
    *("capacities", "failures", "all-limits", "silent", "batch"),
)


def _grid(one: Any) -> Any:
    share = np.concatenate([[0.0, 1e-9], np.linspace(0.01, 1.3, 40)])
    return share.reshape(-1, *[1] * one.ceiling.ndim) * one.ceiling


def _budgets(one: Any) -> tuple[float, ...]:
    most = float(one.cost.sum(axis=-1).max())
    return (1.0, 0.2 * most, 0.5 * most, 1.1 * most)


def tables() -> Iterator[Entry]:
    from agents import index_at_age, myopic_index, relaxation, whittle_index
    from agents.policies.lagrangian import best_rate, gains, table_of
    from agents.theory.closed_form import remainder_ratio
    from agents.theory.frequencies import static_frequencies, static_reward
    from agents.theory.relaxation import net_reward
    from agents.theory.renewal import renewal_arm, simplified
    from crawl_env.content.utility import DECAYS, make_decay

    def per_host(one: Any) -> int:
        return 2 if len(one) == 105 else 1

    for name in FLEETS:
        one = fleet(name)
        ages = np.array([0.0, 1, 2, 3, 5, 9, 24, 100, 1e4]).reshape(-1, *[1] * one.cost.ndim)
        last = 1 if one.cost.ndim == 1 else -1
        prices = np.array([0.0, 0.1, 1.0, 7.5, 100.0])
        charged = [np.full((1,) if last == 1 else (len(one.cost), 1), p) for p in prices]
        plain = not (one.fails or one.is_capped)
        yield (
            f"tables/{name}: derived parameters",
            lambda f=one: [
                *(
                    fleet_numbers(f),
                    f.decay_per_step,
                    f.retention,
                    f.loss,
                    np.multiply(f.decay_per_step, remainder_ratio(f.decay_per_step)),
                    f.ceiling,
                ),
                *(f.inflow, f.published, f.delay, f.host_of),
            ],
        )
        yield f"tables/{name}: content at age", lambda f=one, a=ages: f.content_at(a)
        yield f"tables/{name}: Whittle index of value", lambda f=one: whittle_index(_grid(f), f)
        yield f"tables/{name}: Whittle index at age", lambda f=one, a=ages: index_at_age(a, f)
        if plain:
            yield (
                f"tables/{name}: Whittle index, discounted",
                lambda f=one, a=ages: [
                    [whittle_index(_grid(f), f, d), index_at_age(a, f, d)] for d in (0.5, 0.9, 0.99)
                ],
            )
        yield f"tables/{name}: myopic index", lambda f=one: myopic_index(_grid(f), f)
        yield (
            f"tables/{name}: gain of crawling now under a charge",
            lambda f=one, c=charged: [
                [gains(_grid(f), table_of(simplified(f)), p, best_rate(f, p)) for p in c]
            ],
        )
        yield (
            f"tables/{name}: best net reward under a charge",
            lambda f=one, c=charged: [[net_reward(f, p), best_rate(f, p)] for p in c],
        )
        yield (
            f"tables/{name}: relaxed bound and price",
            lambda f=one: [list(relaxation(f, b, per_host(f))) for b in _budgets(f)],
        )
        yield (
            f"tables/{name}: static frequencies and their reward",
            lambda f=one: [
                [(q := static_frequencies(f, b)), static_reward(f, q)] for b in _budgets(f)
            ],
        )
        yield (
            f"tables/{name}: cycles",
            lambda f=one, a=ages[1:-1]: [
                *(renewal_arm(f).cycle_reward(a), renewal_arm(f).cycle_length(a)),
                *(renewal_arm(f).crawl_rate(a), renewal_arm(f).index_at_age(a)),
            ],
        )
        if not one.is_capped:
            for decay in DECAYS:
                if decay != "exponential" and name != "hacker-news":
                    yield (
                        f"tables/{name}: relaxed bound under {decay} decay",
                        lambda f=one, d=decay: list(relaxation(f, 2.0, 1, make_decay(d))),
                    )


def optima() -> Iterator[Entry]:
    from agents import optimal_reward

    for name, budget in (
        *(("table1", 1.0), ("table1", 2.0), ("table1", 3.0), ("few-dense", 1.0)),
        *(("few-delays", 1.0), ("few-capacities", 1.0), ("few-failures", 2.0), ("few-costs", 3.0)),
    ):
        yield (
            f"optima/best reward of {name}, M = {budget:g}",
            lambda n=name, b=budget: optimal_reward(fleet(n), b, 1e-7),
        )


LAWS = ("poisson", "poisson-constant", "poisson-lognormal", "poisson-gamma")


def bounds() -> Iterator[Entry]:
    """Bounds of tasks, and prices found by simulation; with matrices where content is seen."""
    from agents.theory.task_bound import task_bound

    earlier = {"not observed": "unseen", "partly observed": "mixed", "observed": "seen"}

    def named(bound: Any) -> list[Any]:
        """Return the bound with the name that its information had when the hashes were made."""
        return [*bound[:2], earlier.get(bound.name, bound.name)]

    unseen = (*LAWS, "deterministic", "poisson-lomax", "poisson-stretched", "poisson-drift")
    for name in ("table1", "fleet-f", "sparse", "costs", "all-limits", "failures"):
        half: Any = np.arange(len(fleet(name))) % 2 == 0
        for arrivals in unseen:
            for seen, observed in (("unseen", False), ("seen", True), ("half-seen", half)):
                if observed is not False and arrivals not in LAWS[: 4 if name == "table1" else 1]:
                    continue
                posed = {"sources": fleet(name), "arrivals": arrivals, "observed": observed}
                yield (
                    f"bounds/{name} {arrivals} {seen}",
                    lambda p=posed: [
                        named(task_bound(make_task(budget=b, budget_rule=rule, **p)))
                        for b, rule in ((1.0, "step"), (2.5, "average"))
                    ],
                )

    def batch(observed: bool) -> Any:
        posed = {"sources": drawn_fleet, "budget": 2.0, "arrivals": "poisson"}
        return named(task_bound(make_task(**posed, observed=observed), fleet("batch")))

    yield "bounds/a batch of fleets, unseen", lambda: batch(False)
    yield "bounds/a batch of fleets, seen", lambda: batch(True)


def prices() -> Iterator[Entry]:
    from agents import myopic_index, whittle_index
    from agents.theory.multiplier import BudgetMultiplier

    for name in ("table1", "costs", "delays", "failures", "capacities"):
        for arrivals, observed in (("poisson", True), ("poisson", False), ("deterministic", True)):
            for which, index in (("Whittle", whittle_index), ("myopic", myopic_index)):
                posed = {
                    "sources": fleet(name),
                    "budget": 1.7,
                    "budget_rule": "average",
                    "arrivals": arrivals,
                    "observed": observed,
                }
                seen = "seen" if observed else "unseen"
                yield (
                    f"prices/{name} {arrivals} {seen}, {which} index",
                    lambda p=posed, i=index: BudgetMultiplier(make_task(**p), i)(p["sources"]),
                )


def arms() -> Iterator[Entry]:
    """The exact index where content is seen, which multiplies matrices."""
    from agents.theory.observed import ObservedArm, solve_arm
    from agents.theory.shot_noise import Content, one_item
    from crawl_env.content.utility import UTILITIES as ALL
    from crawl_env.content.utility import make_distribution as make_law

    for law in ALL:
        yield f"arms/one item, {law}", lambda w=law: list(one_item(make_law(w)))
        yield (
            f"arms/content of an epoch, {law}",
            lambda w=law: [
                Content(items, decay, one_item(make_law(w))).shortfall(np.linspace(0.0, 20.0, 50))
                for items, decay in ((0.01, 0.1), (1.0, 0.5), (30.0, 0.05))
            ],
        )
        yield (
            f"arms/exact index of an arm, {law}",
            lambda w=law: [
                list(solve_arm(items, m, make_law(w))[:5]) for items, m in ((0.3, 0.2), (4, 1))
            ],
        )

    def of_fleet(name: str) -> Any:
        one = fleet(name)
        half = np.arange(len(one)) % 2 == 0
        these = ObservedArm(one, half, make_law("exponential"))
        price = np.array([0.5])
        return [these.index(_grid(one)), these.net_reward(price), these.max_multiplier()]

    for name in ("table1", "fleet-f", "sparse"):
        yield f"arms/exact index of {name}, half seen", lambda n=name: of_fleet(n)


def arrivals() -> Iterator[Entry]:
    """Content drawn by every law of arrivals, values and items, and at all starts."""
    from crawl_env import Arrivals, DailyCycle, Drift, Hawkes, Jumps
    from crawl_env.content.utility import Lognormal

    objects: dict[str, dict[str, Any]] = {
        "drift without reversion": {"rate": Drift(0.05, 0.0)},
        "jumps, lognormal": {"rate": Jumps(0.2, "lognormal"), "utility": "gamma"},
        "cycle with a phase": {"rate": DailyCycle(0.9, 12, 3.0)},
        "bursts of bursts": {
            "rate": Hawkes(0.8, 0.3),
            "utility": "lognormal",
            "decay": "lomax",
        },
        "narrow lognormal": {"utility": Lognormal(0.3)},
    }
    for name in (*ARRIVALS, *objects):
        for features in ("value", "items"):
            for start in ("empty", "full", "random"):
                if (features, start) == ("items", "full"):
                    continue

                def drawn(name: str = name, features: str = features, start: str = start) -> Any:
                    sampler: Any = "total" if features == "value" else "items"
                    given = name in objects and Arrivals(**objects[name], sampler=sampler)
                    env = rows_of(
                        2,
                        sources=fleet("dense" if features == "value" else "capacities"),
                        budget=2.0,
                        arrivals=given or name,
                        features=FEATURES[features],
                        start=start,
                    )
                    told = [env.reset(seed=8)[0]]
                    rest = np.linspace(-1, 1, 2 * env.task.n, dtype=np.float32).reshape(2, -1)
                    told += [env.step(rest)[:2] for _ in range(20)]
                    return [told, what_waits(env)]

                sampled = " (items-sampled)" * (features == "items" and name != "deterministic")
                yield f"arrivals/{name}, {features}, {start}{sampled}", drawn


# ---------------------------------------------------------------------------------------- adaptive

ESTIMATORS = (*("gamma-poisson", "fleet-prior", "forgetting", "drifting", "changed"),)
ADAPTIVE = ("certainty", "optimism", "thompson", "self-tuning")


def adaptive() -> Iterator[Entry]:
    from agents.inference import CrawlOutcome
    from agents.policies.base import arrays_of
    from experiments.adaptive.estimators import make_estimator

    def estimated(name: str, period: float) -> Any:
        estimator = make_estimator(name, period)
        rng, shape = np.random.default_rng(9), (2, 5)
        state = estimator.begin(shape)
        rate = np.linspace(0.05, 2.0, 5)
        gap = np.full(shape, period)
        for _ in range(60):
            crawled = rng.random(shape) < 0.3
            items = rng.poisson(rate * gap).astype(np.float64)
            state = estimator.update(
                state, CrawlOutcome.of(gap.copy(), items, crawled, items > 0, period)
            )
            gap = np.where(crawled, period, gap + period)
        law = estimator.posterior(state)
        return [state, law.mean, law.deviation, law.quantile(0.9), law.quantile(0.05)]

    def played(agent: str, seen: str, features: str, rule: str, estimator: str | None) -> Any:
        env = rows_of(
            2,
            sources=fleet("sparse"),
            budget=2.0,
            budget_rule=rule,
            arrivals="poisson",
            observed=seen == "seen",
            features=FEATURES[features],
        )
        options = {} if estimator is None else {"estimator": make_estimator(estimator)}
        player = make_agent(f"adaptive-{agent}", env, **options)
        observation, _ = env.reset(seed=6)
        state = None
        for _ in range(60):
            action, state = player.predict(observation, state)
            observation = env.step(action)[0]
        law = player.posterior(state)
        return [action, observation, list(arrays_of(state)), law.mean, law.deviation]

    for name in ESTIMATORS:
        for period in (1.0, 0.25):
            yield (
                f"adaptive/estimator {name}, period {period:g}",
                lambda n=name, p=period: estimated(n, p),
            )
        yield (
            f"adaptive/played by {name}, items (items-sampled)",
            lambda n=name: played("certainty", "unseen", "items", "step", n),
        )
    for agent in ADAPTIVE:
        for features in ("known", "items", "changed", "sums"):
            for rule in ("step", "average"):
                for seen in ("unseen", "seen"):
                    if (agent, features) == ("self-tuning", "changed"):
                        continue
                    if seen == "seen" and features not in ("known", "sums"):
                        continue
                    sampled = " (items-sampled)" * (features in ITEMISED)
                    yield (
                        f"adaptive/agent {agent}, {features}, {seen}, {rule}{sampled}",
                        lambda a=agent, s=seen, f=features, r=rule: played(a, s, f, r, None),
                    )


# ---------------------------------------------------------------------------------------- learners

SMALL: dict[str, Any] = {  # of Stable-Baselines3's, as in their tests
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
}
LEARNERS: dict[str, tuple[int, int, str]] = {  # rows, epochs, features
    "whittle-q": (4, 200, "ages"),
    "lagrange-q": (4, 200, "ages"),
    "lspe": (4, 200, "ages"),
    "wiql": (4, 200, "ages"),
    "adaptive-thompson": (1, 200, "ages"),
    "neurwin": (8, 200, "ages"),
    "deeptop": (4, 120, "ages"),
    "qwinn": (4, 120, "ages"),
    "equivariant-ppo": (4, 96, "known"),
    "equivariant-index": (4, 96, "known"),
}
STABLE = ("ppo", "a2c", "sac", "td3", "dqn", "qr-dqn", "maskable-ppo")
AGES = ("age", "crawled", "harvest")


def learner(name: str, env: Any, **settings: Any) -> Any:
    """Return a learner by name, its settings changed where it has them."""
    from agents.adaptive.learner import ThompsonLearner
    from agents.learning import LEARNERS as ALL

    kind: Any = ThompsonLearner if name == "adaptive-thompson" else ALL[name]
    own = {key: value for key, value in settings.items() if key in _settings(kind)}
    return kind(env, kind.Settings(**own), seed=1)


def _settings(kind: Any) -> set[str]:
    return {field.name for field in fields(kind.Settings)}


def learners() -> Iterator[Entry]:
    def learnt(name: str, rows: int, epochs: int, shown: Any, horizon: int, **settings: Any) -> Any:
        posed = {"sources": fleet("table1"), "budget": 2.0, "arrivals": "poisson"}
        env = rows_of(rows, features=shown, horizon=horizon, **posed)
        pupil = learner(name, env, **settings)
        pupil.learn(epochs)
        observation, _ = env.reset(seed=12)
        played = [pupil.predict(observation)[0]]
        for _ in range(10):
            observation = env.step(played[-1])[0]
            played.append(pupil.predict(observation)[0])
        return pupil.state_dict(), played, pupil.steps

    @cache
    def once(name: str) -> Any:
        kind, _, network = name.partition(", ")
        if kind in LEARNERS:
            rows, epochs, shown = LEARNERS[kind]
            return learnt(kind, rows, epochs, AGES if shown == "ages" else FEATURES["known"], 50)
        small = {**SMALL, "hidden": 4, "network": network}
        return learnt(kind, 3, 32, ("value", "age", "decay_rate"), 13, **small)

    names = (
        *LEARNERS,
        *(f"{s}, {network}" for s in STABLE for network in ("equivariant", "default")),
    )
    for name in names:
        yield f"learners/{name}: what is learnt", lambda n=name: once(n)[0]
        yield f"learners/{name}: what is played", lambda n=name: once(n)[1:]


# ------------------------------------------------------------------------ evaluation and benchmark


def evaluation() -> Iterator[Entry]:
    settings = {"steps": 60, "warmup": 10, "seeds": 3, "seed": 2}
    tasks: dict[str, dict[str, Any]] = {
        "table1, deterministic": {"sources": fleet("table1"), "budget": 2},
        "costs, average": {
            "sources": fleet("costs"),
            "budget": 4,
            "budget_rule": "average",
            "arrivals": "poisson",
            "observed": False,
        },
        "all limits": {
            "sources": fleet("all-limits"),
            "budget": 2,
            "arrivals": "poisson-lomax",
            "observed": False,
            "per_host": 2,
        },
        "fleets drawn anew": {
            "sources": drawn_fleet,
            "budget": 2,
            "arrivals": "poisson",
            "features": FEATURES["known"],
        },
    }
    peers = (
        *("whittle", "lagrangian", "static", "myopic", "oldest-first", "random", "fixed", "nutch"),
        *("miniflux", "adaptive-certainty", "adaptive-optimism", "adaptive-thompson"),
        *("adaptive-self-tuning", "clairvoyant"),
    )
    for task, posed in tasks.items():
        for agent in peers:
            yield (
                f"evaluation/{task}: {agent}",
                lambda a=agent, p=posed: evaluated(a, p, **settings),
            )
    yield (
        "evaluation/table1, discounted: whittle",
        lambda: evaluated("whittle", tasks["table1, deterministic"], **settings, discount=0.99),
    )


def benchmark() -> Iterator[Entry]:
    """The benchmark's own tasks, units of work and scores, with very few epochs."""
    from ephemeral_crawl.core import evaluation
    from ephemeral_crawl.core.tables import scores
    from experiments.benchmark.learning import entrants
    from experiments.benchmark.learning.plan import training_job
    from experiments.benchmark.learning.training import train
    from experiments.benchmark.policies import AGENTS, _job
    from experiments.benchmark.suite import SUITE

    def short(setting: Any) -> Any:
        return replace(setting, steps=20, warmup=min(setting.warmup, 5), seeds=3)

    def run(setting: Any) -> Any:
        large = "100" in str(setting.arguments["sources"])  # too slow to solve all arms
        names = [n for n in AGENTS if not (large and n == "whittle-exact")]
        found = {
            name: evaluation.as_evaluation(evaluation.work(_job(setting, name, 0)), setting.seeds)
            for name in evaluation.entrants(names, setting.arguments)
        }
        runs = {name: run for name, run in found.items() if name != "clairvoyant"}
        reference = found.get("clairvoyant")
        kept = [list(e.__dict__.values()) for e in found.values()]
        score = [list(estimate) for estimate in scores(runs).values()]
        return [kept, score, None if reference is None else reference.reward]

    def taught(entrant: Any, training: Any) -> Any:
        unit = training_job(replace(entrant, num_envs=2), training, 1_600, 0)
        for test in unit["tests"]:
            test["full"] = {**test["full"], "steps": 20, "warmup": 5, "seeds": 2}
            test["short"] = {**test["short"], "steps": 20, "warmup": 5, "seeds": 2}
        done = train({**unit, "index_steps": 30})
        return [
            [[row["rewards"], row["index_error"]] for row in done["runs"]],
            [row["reward"] for row in done["curves"]],
        ]

    for setting in map(short, SUITE):
        name = f"benchmark/{setting.group.split(',')[0]}, {setting.name}"
        yield f"{name}: policies", lambda s=setting: run(s)
        if setting.discount == 1 and "100" not in str(setting.arguments["sources"]):
            yield (
                f"{name}: bound",
                lambda s=setting: evaluation.bound(_job(s, "whittle", 0))["bound"],
            )
    for entrant in entrants.QUICK.entrants:
        one = entrants.QUICK.trainings[0]
        yield f"benchmark/learner {entrant.learner}", lambda e=entrant, t=one: taught(e, t)


# ----------------------------------------------------------------------- statistics, fits, replays


def statistics() -> Iterator[Entry]:
    from agents.evaluation import aggregate
    from agents.evaluation import statistics as s

    rng = np.random.default_rng(0)
    one, other, third = rng.normal(5, 1, 20), rng.normal(4, 1, 20), rng.normal(1, 1, 20)
    tasks = [rng.random(n) for n in (8, 20, 5)]
    against = [rng.random(n) for n in (8, 20, 5)]
    found: dict[str, Callable[[], Any]] = {
        "mean": lambda: s.mean(one),
        "difference": lambda: s.difference(one, other),
        "ratio": lambda: s.ratio(one, other),
        "score": lambda: s.score(other, third, one),
        "score, of alike": lambda: s.score(other, one, one),
        "loss": lambda: s.loss(other, one),
        "interquartile mean": lambda: aggregate.interquartile_mean(np.stack([one, other])),
        "interquartile mean over tasks": lambda: aggregate.iqm(tasks),
        "profile": lambda: aggregate.profile(tasks, np.linspace(0, 1, 11)),
        "improvement": lambda: aggregate.improvement(tasks, against),
        "gain": lambda: aggregate.gain(tasks, against),
        "texts": lambda: [str(s.mean(one)), str(s.mean(one * 1e5)), str(s.mean(np.ones(3)))],
    }
    for name, compute in found.items():
        yield f"statistics/{name}", lambda c=compute: c()


@cache
def example_log() -> Any:
    from crawl_env import ItemLog

    return ItemLog.from_csv(DATA / "example-log.csv")


def fit() -> Iterator[Entry]:
    from agents.inference import shrinkage
    from ephemeral_crawl.fit import checks, decay

    def counts() -> Any:
        return np.bincount(example_log().source, minlength=len(example_log().names))

    yield (
        "fit/rates of the example log",
        lambda: list(shrinkage.rates(counts(), example_log().span)),
    )
    yield (
        "fit/utilities of the example log",
        lambda: list(
            shrinkage.utilities(example_log().source, example_log().utility, counts().size)
        ),
    )
    yield "fit/dispersion of the example log", lambda: list(checks.dispersion(example_log()))
    yield "fit/gaps of the example log", lambda: list(checks.gaps(example_log()))
    yield "fit/drift of the example log", lambda: list(checks.drift(example_log()))
    yield "fit/daily cycle of the example log", lambda: list(checks.cycle(example_log()))
    yield "fit/decay from recorded curves", lambda: list(decay.measure(log_of("fleet-f"), 9.0))
    yield (
        "fit/estimates with known errors, shrunk",
        lambda: list(
            shrinkage.shrunk(np.array([1.0, 3, 0, 2.5]), np.array([0.1, 0.9, np.inf, 0.4]))
        ),
    )


def replay() -> Iterator[Entry]:
    from agents.evaluation.rollout import Rollout
    from ephemeral_crawl.replay.hindsight import Hindsight
    from ephemeral_crawl.replay.play import play as play_back
    from ephemeral_crawl.replay.split import Log

    @cache
    def split() -> Any:
        return Log(items=DATA / "example-log.csv", decay_rate=0.12).split(None, 1.0, 200)

    def played(agent: str, rule: str) -> Any:
        arguments = {
            "sources": split().fleet,
            "budget": 2.0,
            "budget_rule": rule,
            "arrivals": split().trace,
            "observed": agent == "clairvoyant",
            "start": "empty",
        }
        return list(play_back(Rollout(agent, arguments, 1, 0), split().trace, split().steps))

    yield (
        "replay/the example log in two parts",
        lambda: [split().fleet, split().refitted, split().published, split().steps],
    )
    yield (
        "replay/hindsight bound",
        lambda: [
            Hindsight(split().trace, split().fleet, split().steps).bound(b) for b in (0.5, 2.0, 8)
        ],
    )
    for rule in ("step", "average"):
        for agent in (
            *("whittle", "lagrangian", "static", "random", "nutch", "miniflux"),
            *("adaptive-thompson", "adaptive-self-tuning", "clairvoyant"),
        ):
            yield f"replay/{agent}, {rule}", lambda a=agent, r=rule: played(a, r)


def selection() -> Iterator[Entry]:
    from crawl_env.simulation.selection import Hosts, select, whole_budget

    polite = make_fleet(1.0, 1.0, [0.1] * 9, hosts=["a", "a", "b", "b", "", "c", "c", "c", ""])

    def chosen(rows: int, even: bool, average: bool, allow: bool, shared: bool, ties: bool) -> Any:
        rng, n = np.random.default_rng(21), 9
        cost = np.ones(n) if even else rng.choice([0.5, 1.0, 2.0, 3.0], n)
        hosts = Hosts.of(polite, 1) if shared else None
        found = []
        for budget in (1.0, 2.0, 3.5, 7.0, 20.0):
            for _ in range(8):
                priority = rng.uniform(-1, 1, (rows, n)).astype(np.float32)
                if ties:
                    priority = np.round(priority * 2) / 2
                since = rng.integers(0, 5, (rows, n)).astype(np.float64)
                allowed = rng.random((rows, n)) < 0.7 if allow else None
                balance = rng.normal(budget, budget, rows) if average else None
                whole = whole_budget(cost, budget)
                found.append(select(priority, since, cost, budget, whole, balance, allowed, hosts))
        return [np.sort(np.ravel(x)).astype(np.int64) for x in found]

    flags = [(bool(k & 1), bool(k & 2), bool(k & 4), bool(k & 8), bool(k & 16)) for k in range(32)]
    words = ("even costs", "on average", "some not allowed", "shared hosts", "ties")
    for rows in (1, 4):
        for flag in flags:
            told = ", ".join(w for w, on in zip(words, flag, strict=True) if on) or "plain"
            yield f"selection/{rows} rows, {told}", lambda r=rows, f=flag: chosen(r, *f)


FLEET_CSV = """source,arrival_rate,mean_utility,decay_rate,cost,crawl_delay,capacity,failure_rate,host
a,1.5,2,0.1,1,,5,0.1,h
"b, with a comma",0.25,1e2,.3,2.5,3,,,h
c,0,1,0.07,,0.5,2,0,
"""  # noqa: E501
ITEMS_CSV = """item,source,published,utility
7,a,2024-03-01T05:00:00Z,3
8,b,2024-03-01T01:30:00+02:00,0
9,a,2024-03-02T00:00:01Z,1.25
"""
CURVES_CSV = """item,age,remaining
9,0.5,0.7
9,4,0
7,1,0.9
"""


def files() -> Iterator[Entry]:
    from crawl_env import ItemLog, Sources

    folder = tempfile.TemporaryDirectory(prefix="golden-")  # gone with the last entry

    def numbers(log: Any) -> list[Any]:
        curves = log.curves
        told = [] if curves is None else [curves.first, curves.age, curves.remaining]
        times = [log.start, log.end, log.unit, log.origin]
        return [list(log.names), log.source, log.published, log.utility, *times, *told]

    def written(name: str, text: str) -> Path:
        path = Path(tempfile.mkdtemp(dir=folder.name)) / name
        path.write_text(text, encoding="utf-8")
        return path

    def back(name: str) -> Any:
        path = written("fleet.csv", "")
        fleet(name).to_csv(path)
        return path.read_text(encoding="utf-8")

    def items(unit: str) -> Any:
        curves = written("curves.csv", CURVES_CSV)
        return numbers(ItemLog.from_csv(written("log.csv", ITEMS_CSV), curves, unit))

    def log_back() -> Any:
        log, curves = written("log.csv", ""), written("curves.csv", "")
        log_of("table1", 5.0).to_csv(log, curves)
        again = ItemLog.from_csv(log, curves)
        texts = [path.read_text(encoding="utf-8") for path in (log, curves)]
        return [*texts, numbers(again)]

    def parts() -> Any:
        log = log_of("fleet-f")
        return [
            numbers(part)
            for part in (
                log.between(3.0, 20.0),
                log.covering(-5.0, 70.0),
                log.select(["9", "2"]),
            )
        ]

    yield "files/fleet of the example", lambda: Sources.preset("mixed-costs")
    yield "files/fleet with all columns", lambda: Sources.from_csv(written("f.csv", FLEET_CSV), 0.5)
    for name in ("table1", "costs", "all-limits", "delays"):
        yield f"files/{name} as it is written", lambda n=name: back(n)
    yield "files/log of the example", lambda: numbers(example_log())
    for unit in ("minute", "hour", "day"):
        yield f"files/log with time stamps and curves, {unit}", lambda u=unit: items(u)
    yield "files/log written and read back", log_back
    yield "files/parts of a log", parts


# ---------------------------------------------------------------------------------- all the groups


class Group(NamedTuple):
    """Entries that are computed together."""

    entries: Callable[[], Iterator[Entry]]
    products: bool = False  # of matrices, or by torch: they differ between more processors
    quick: bool = True  # checked by the tests


GROUPS = {
    "trajectory": Group(trajectory),
    "trajectory-products": Group(trajectory_products, products=True),
    "faces": Group(faces),
    "engine": Group(engine),
    "rendering": Group(rendering),
    "tables": Group(tables),
    "optima": Group(optima),
    "bounds": Group(bounds, products=True),
    "prices": Group(prices, quick=False),
    "arms": Group(arms, products=True),
    "arrivals": Group(arrivals),
    "adaptive": Group(adaptive, products=True),
    "learners": Group(learners, products=True),
    "evaluation": Group(evaluation, products=True),
    "benchmark": Group(benchmark, products=True, quick=False),
    "statistics": Group(statistics),
    "fit": Group(fit, products=True),
    "replay": Group(replay, products=True),
    "selection": Group(selection),
    "files": Group(files),
}


def fingerprints() -> dict[str, str]:
    """Return what the last bits depend on: of numpy's loops, and of products and torch."""
    import torch

    features = np._core._multiarray_umath.__cpu_features__
    found = " ".join(sorted(name for name, there in features.items() if there))
    short = hashlib.sha256(found.encode()).hexdigest()[:8]
    loops = f"{platform.machine()}, numpy {np.__version__}, processor features {short}"
    products = f"torch {torch.__version__} {torch.backends.cpu.get_cpu_capability()}, {_blas()}"
    return {"loops": loops, "products": products}


def _blas() -> str:
    for library in _openblas():
        name = library.scipy_openblas_get_corename64_
        name.restype = ctypes.c_char_p
        return f"BLAS for {name().decode()}"
    return "BLAS unknown"


def _openblas() -> list[Any]:
    """Return what multiplies numpy's matrices, where it came with numpy's wheel."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    libraries = [ctypes.CDLL(str(file)) for file in folder.glob("*openblas*")]
    return [found for found in libraries if hasattr(found, "scipy_openblas_set_num_threads64_")]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Multiply matrices in one thread: how many there are changes the last bits of products."""
    import torch

    before = [library.scipy_openblas_get_num_threads64_() for library in _openblas()]
    torch_before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        for library in _openblas():
            library.scipy_openblas_set_num_threads64_(1)
        yield
    finally:
        torch.set_num_threads(torch_before)
        for library, threads in zip(_openblas(), before, strict=True):
            library.scipy_openblas_set_num_threads64_(threads)


def computed(group: str, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, str]:
    """Return the hashes of a group's entries; of one that fails, the error."""
    found = {}
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")
        for name, compute in GROUPS[group].entries():
            if not wanted(name):
                continue
            try:
                found[name] = digest(compute())
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
    return found


def recorded() -> dict[str, Any]:
    """Return what `golden.json` holds: fingerprints and hashes."""
    if not FILE.exists():
        return {"made on": {}, "entries": {}}
    return json.loads(FILE.read_text(encoding="utf-8"))


def differing(group: str, found: dict[str, str], known: dict[str, str]) -> list[str]:
    """Return a line for each entry of a group that is not as recorded."""
    mine = {name: value for name, value in known.items() if name.split("/")[0] == group}
    lines = [f"{name}: gone" for name in mine if name not in found]
    for name, value in found.items():
        if name not in mine:
            lines.append(f"{name}: new ({value})")
        elif mine[name] != value:
            lines.append(f"{name}: {mine[name]} became {value}")
    return lines


def _matches(name: str, patterns: list[str]) -> bool:
    return any(name.startswith(p) or fnmatch.fnmatchcase(name, p) for p in patterns)


def main() -> int:
    """Check, renew or list the entries; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*GROUPS], default=[*GROUPS], metavar="GROUP")
    parser.add_argument("--renew", nargs="+", metavar="NAME", help="names, prefixes or patterns")
    parser.add_argument("--list", action="store_true", help="list names, compute nothing")
    chosen = parser.parse_args()
    if chosen.list:
        for group in chosen.only:
            print(*(name for name, _ in GROUPS[group].entries()), sep="\n")
        return 0
    record, here, lines = recorded(), fingerprints(), []
    if record["made on"] not in ({}, here):
        print(f"Made on {record['made on']}; this is {here}: last bits may differ.")
        if chosen.renew and chosen.renew != ["*"]:
            print("Renew where the others were made, or renew all: --renew '*'.")
            return 2
    known = record["entries"]
    for group in chosen.only:
        if chosen.renew:
            names = [name for name, _ in GROUPS[group].entries()]
            old = [name for name in known if name.split("/")[0] == group]
            if not any(_matches(name, chosen.renew) for name in (*names, *old)):
                continue
            found = computed(group, lambda name: _matches(name, chosen.renew))
            failed = [f"{name}: {value}" for name, value in found.items() if ": " in value]
            if failed:
                print(*failed, sep="\n")
                return 1
            changed = [name for name in found if known.get(name) != found[name]]
            gone = [name for name in old if _matches(name, chosen.renew) and name not in found]
            known = {name: value for name, value in {**known, **found}.items() if name not in gone}
            print(f"{group}: {len(changed)} of {len(found)} renewed, {len(gone)} removed")
            continue
        began = time.perf_counter()
        found = computed(group)
        off = differing(group, found, known)
        lines += off
        took = time.perf_counter() - began
        print(f"{group}: {len(found)} entries, {len(off)} differ, {took:.1f} s", flush=True)
    if chosen.renew:
        made = here if not record["made on"] or chosen.renew == ["*"] else record["made on"]
        text = json.dumps({"made on": made, "entries": dict(sorted(known.items()))}, indent=1)
        FILE.write_text(text + "\n", encoding="utf-8")
        return 0
    print(*lines, sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    sys.exit(main())
