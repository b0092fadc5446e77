"""Steps of policies and of content in large fleets, against what the machine can do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agents.theory.closed_form import ClosedForm
from crawl_env import Arrivals, Deterministic, Sources, World
from crawl_env.simulation.selection import select_top
from experiments.adaptive import cost
from experiments.core.clock import Call, interleaved
from experiments.throughput.figure import Figure, longer, timed

WHITTLE, CONTENT, ADAPTIVE = "Whittle step", "Content", "Adaptive agents"
N = 10**6  # sources of a Whittle step
_MOVED = 64  # bytes a source, with which a Whittle step is compared
_DENSE = 10**5  # sources whose content is drawn
_RATE = 5.0  # items per source and step
LEARNING = 10**5  # sources of an adaptive agent


def whittle_figures(rounds: int, n: int = N) -> Iterator[Figure]:
    """Yield the time of a step of the Whittle policy, against copying 64 bytes a source."""
    rounds = max(3, rounds // 3) if n >= N else rounds
    whole, content = _observed(_fleet(n))
    candidates = {
        "step": _unobserved(_fleet(n)),
        "copy": _copying(n * _MOVED),
        "half": _copying(n * _MOVED // 2),
        "observed": whole,
        "content": content,
    }
    times = interleaved(candidates, rounds)
    size = f"{n:,} sources, M = N/100"
    moved = times["step"].ratio_to(times["half"])[0]
    yield longer(
        WHITTLE,
        f"index, select, crawl and advance, not observed, {size}, against copying 64 B a source",
        2.0,
        times["step"],
        times["copy"],
        f"{moved:.2f} × copying 32 B, which reads and writes 64 B in all",
    )
    yield longer(
        WHITTLE,
        f"the same, observed Poisson content, {size}, without drawing the content",
        5.0,
        times["observed"].minus(times["content"]),
        times["copy"],
    )


def content_figures(rounds: int, n: int = _DENSE) -> Iterator[Figure]:
    """Yield the time of drawing content, against numpy drawing a Poisson number per source."""
    rng, other = np.random.default_rng(0), np.random.default_rng(0)
    world = World(_fleet(n), Arrivals())
    world.start(np.ones(world.shape), rng)
    times = timed(lambda: world.advance(rng), lambda: other.poisson(_RATE, n), rounds)
    yield longer(
        CONTENT,
        f"step of Poisson content, ΛT = {_RATE:g}, {n:,} sources, against numpy drawing as many "
        "Poisson numbers",
        1.0,
        *times,
        note="in as many threads as the package uses here; the limit is for two",
    )


def adaptive_figures(rounds: int, n: int = LEARNING) -> Iterator[Figure]:
    """Yield the time of a step of every adaptive agent, against Whittle's with known rates."""
    for each in cost.measure(n, max(3, rounds // 3)):
        what = f"{each.name}, shown {each.shown}, {n:,} sources, against Whittle with known rates"
        yield longer(ADAPTIVE, what, 2.0, each.step, each.best_step)


def _fleet(n: int) -> Sources:
    rng = np.random.default_rng(0)
    return Sources(np.full(n, _RATE), rng.lognormal(0, 0.8, n), rng.uniform(0.03, 0.5, n))


def _copying(size: int) -> Call:
    """Return a copy of as many bytes."""
    origin = np.ones(size // 8)
    target = np.empty_like(origin)
    return lambda: np.copyto(target, origin)


def _closed_form(fleet: Sources) -> ClosedForm:
    return ClosedForm(fleet.ceiling, fleet.cost, fleet.decay_per_step)


def _unobserved(fleet: Sources) -> Call:
    """Return a step of the policy in mean content, which is the belief of unobserved sources."""
    rng, k, index = np.random.default_rng(0), max(1, len(fleet) // 100), _closed_form(fleet)
    world = World(fleet, Deterministic())
    world.start(rng.integers(1, 200, world.shape).astype(np.float64), rng)

    def step() -> None:
        world.crawl(select_top(index.index_at_age(world.age), k, world.crawled_at))
        world.advance(rng)

    return step


def _observed(fleet: Sources) -> tuple[Call, Call]:
    """Return a step of the policy that observes random content, and the drawing alone."""
    rng, k, index = np.random.default_rng(0), max(1, len(fleet) // 100), _closed_form(fleet)
    world = World(fleet, Arrivals())
    world.start(np.ones(world.shape), rng)

    def step() -> None:
        world.crawl(select_top(index.index(world.value), k, world.crawled_at))
        world.advance(rng)

    return step, lambda: world.advance(rng)
