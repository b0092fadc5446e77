"""What the crawler collects in fourteen days, against the rules and an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.live.feeds.crawl import crawl
from experiments.live.feeds.rules import RULES, follow
from experiments.live.feeds.world import HOUR, World

BUDGETS = (3, 6, 12)  # fetches an hour
SEEDS = 8
CASES = ("own hosts", "shared hosts", "pings")

Row = dict[str, Any]


def measure(
    seeds: Sequence[int] = range(SEEDS),
    budgets: Sequence[float] = BUDGETS,
    days: float = 14.0,
    cases: Sequence[str] = CASES,
) -> list[Row]:
    """Return a row for each case, seed, budget and policy: the fraction of all worth collected.

    Cases: each feed on a host of its own; half of them on three hosts that accept one fetch an hour
    each; pings of recall .8 and precision .5, to be learnt, with hosts of their own.
    """
    return [
        {"case": case, "seed": seed, "budget": budget, "policy": policy, "fraction": fraction}
        for case in cases
        for seed in seeds
        for budget in budgets
        for policy, fraction in _collected(case, seed, budget, days).items()
    ]


def _collected(case: str, seed: int, budget: float, days: float) -> dict[str, float]:
    shared = case == "shared hosts"
    per_host = HOUR if shared else 0.0

    def world() -> World:
        return World(seed, days=days, shared_hosts=shared)

    crawled = world()
    crawl(crawled, budget, per_host=per_host, pings=case == "pings")
    found = {"Scheduler": crawled.fraction}
    if case != "pings":
        for name, rule in RULES.items():
            found[name] = follow(world(), budget, rule, per_host)
    return found
