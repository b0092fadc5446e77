"""The tasks of the benchmark. To add one, append a `BenchmarkTask` here: nothing else lists them.

A task whose meaning changes gets a new version and a line in its history; a test compares every
task with a golden value, so that none changes unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from crawl_env.benchmark.recordings import RECORDED, Recording
from crawl_env.benchmark.task import BenchmarkTask, Tier
from crawl_env.errors import check_choice, shown, unknown
from crawl_env.fleet.parameters import PARAMETERS

Arguments = dict[str, Any]

TIERS: tuple[Tier, ...] = get_args(Tier)
POISSON_UNOBSERVED = {"arrivals": "poisson", "observed": False}
DETERMINISTIC = {"arrivals": "deterministic"}
# By the word in a name, with the words in a label.
_ARRIVALS: dict[str, tuple[str, Arguments]] = {
    "Deterministic": ("deterministic", DETERMINISTIC),
    "Observed": ("Poisson, observed", {"arrivals": "poisson", "observed": True}),
    "Unobserved": ("Poisson, not observed", POISSON_UNOBSERVED),
}
ITEMS = {"arrivals": "poisson-items", "observed": False}
# Features where every run draws a new fleet: the observation includes its parameters.
DRAWN = ("value", *PARAMETERS)


def _table1() -> Iterator[BenchmarkTask]:
    # 2,800 steps are a multiple of the cycle lengths for M = 1, 2, 3 (2, 7 and 4 steps).
    for name, (label, arrivals) in _ARRIVALS.items():
        for m in (1, 2, 3):
            yield BenchmarkTask(
                name=f"Table1M{m}{name}",
                tier="checks",
                group="Table 1 of the paper",
                label=f"M = {m}, {label}",
                arguments={"sources": "table1", "budget": m, **arrivals},
                steps=2800,
                warmup=200,
            )


def _recovering() -> Iterator[BenchmarkTask]:
    for n, m in ((4, 1), (10, 1), (100, 25)):
        yield BenchmarkTask(
            name=f"Recovering{n}M{m}Discounted",
            tier="checks",
            group="Recovering bandits, NeurWIN's protocol: Σ 0.99^t r_t over 300 steps",
            label=f"N = {n}, M = {m}",
            arguments={"sources": f"recovering-{n}", "budget": m, **DETERMINISTIC},
            steps=300,
            discount=0.99,
            seeds=100,
        )
    for n, m in ((10, 3), (20, 5), (30, 6)):
        yield BenchmarkTask(
            name=f"Recovering{n}M{m}",
            tier="checks",
            group="Recovering bandits, DeepTOP's protocol: mean reward of steps 6,000–11,999",
            label=f"N = {n}, M = {m}",
            arguments={"sources": f"recovering-{n}", "budget": m, **DETERMINISTIC},
            steps=6000,
            warmup=6000,
        )


def _random() -> Iterator[BenchmarkTask]:
    for regime in ("dense", "sparse"):
        for name, (label, arrivals) in _ARRIVALS.items():
            yield BenchmarkTask(
                name=f"{regime.title()}100{name}",
                tier="checks",
                group="Random fleets, N = 100, M = 10, a different fleet in each of 20 runs",
                label=f"{regime}, {label}",
                arguments={
                    "sources": f"drawn-{regime}-100",
                    "budget": 10,
                    "features": list(DRAWN),
                    **arrivals,
                },
                steps=1000,
                warmup=200,
            )


def _costs() -> Iterator[BenchmarkTask]:
    for name, label, rule in (
        ("Step", "Poisson, not observed, budget per step", "step"),
        ("Average", "Poisson, not observed, average budget", "average"),
    ):
        yield BenchmarkTask(
            name=f"Costs20{name}",
            tier="checks",
            group="A fleet read from a CSV with mixed costs (example.csv), M = 4",
            label=label,
            arguments={
                "sources": "mixed-costs",
                "budget": 4,
                "budget_rule": rule,
                **POISSON_UNOBSERVED,
            },
            steps=2000,
            warmup=200,
        )


def _learning() -> Iterator[BenchmarkTask]:
    def task(
        name: str, label: str, sources: str, information: str, steps: int, warmup: int, **more: Any
    ) -> BenchmarkTask:
        n = int(sources.split("-")[2])
        return BenchmarkTask(
            name=name,
            tier="learning",
            group="Parameters unknown, a different fleet in each run, M = N/10",
            label=f"N = {n:,}, {label}",
            arguments={"sources": sources, "budget": n // 10, **ITEMS},
            information=information,
            steps=steps,
            warmup=warmup,
            **more,
        )

    first, late = "steps 200–799", "steps 2,000–2,599"
    sparse, dense = "drawn-sparse-100", "drawn-dense-100"
    yield task("Sparse100Harvest", f"sparse, harvest only, {first}", sparse, "harvest", 600, 200)
    yield task(
        "Sparse100HarvestLong", f"sparse, harvest only, {late}", sparse, "harvest", 600, 2000
    )
    yield task("Sparse100Items", f"sparse, items, {first}", sparse, "items", 600, 200)
    yield task("Sparse100ItemsCold", "sparse, items, steps 0–199", sparse, "items", 200, 0)
    yield task(
        "Sparse100RatesCold", "sparse, rates unknown, steps 0–199", sparse, "rates unknown", 200, 0
    )
    yield task("Dense100Harvest", f"dense, harvest only, {first}", dense, "harvest", 600, 200)
    for n, runs in ((10, 40), (1000, 20)):
        yield task(
            f"Sparse{n}Harvest",
            f"sparse, harvest only, {first}",
            f"drawn-sparse-{n}",
            "harvest",
            600,
            200,
            seeds=runs,
        )
    for regime, n in (("sparse", 10), ("dense", 10), ("sparse", 100)):
        yield task(
            f"{regime.title()}{n}Trained",
            f"{regime}, harvest only, trained on the fleet of the run",
            f"drawn-{regime}-{n}-{{fleet}}",
            "harvest",
            600,
            200,
        )
    yield BenchmarkTask(
        name="Mixed20Trained",
        tier="learning",
        group="Parameters unknown, a different fleet in each run, M = N/10",
        label="N = 20, sparse, the values of every other source observed, trained on the fleet "
        "of the run",
        arguments={
            "sources": "drawn-sparse-20-{fleet}",
            "budget": 2,
            "arrivals": "poisson",
            "observed": [True, False] * 10,
        },
        information="mixed",
        steps=600,
        warmup=200,
        version=1,
        history=(
            "First version. The value of sources that were not observed was their expected content "
            "at the true parameters, which an agent must not know.",
            "The feature `content` in place of `value`.",
        ),
    )


# Evenly spread; which source has which phase, and which quality, differs between runs.
_PHASES = [round(0.24 * i, 2) for i in range(100)]
_QUALITY = {"recall": [0.0, 0.3, 0.6, 0.9, 0.9] * 10, "precision": [1.0, 0.9, 0.5, 0.9, 0.2] * 10}


def _open() -> Iterator[BenchmarkTask]:
    def task(
        name: str,
        label: str,
        more: Mapping[str, Any],
        information: str = "items",
        n: int = 100,
        m: int = 10,
        steps: int = 1000,
        warmup: int = 500,
        **other: Any,
    ) -> BenchmarkTask:
        return BenchmarkTask(
            name=name,
            tier="open",
            group=f"Parameters {'known' if 'known' in information else 'and structure unknown'}, "
            "a different fleet in each run",
            label=f"{label}, N = {n}, M = {m}",
            arguments={"sources": f"drawn-sparse-{n}", "budget": m, **ITEMS, **more},
            information=information,
            steps=steps,
            warmup=warmup,
            **other,
        )

    def rates(**model: Any) -> Arguments:
        return {"arrivals": {"name": "poisson", "rate": model, "sampler": "items"}}

    current = ("whittle-current",)  # at the current rates, which no crawler knows
    drift, jumps = rates(name="drift", sigma=0.1, reversion=0.01), rates(name="jumps", rate=0.01)
    yield task("Drift100", "rates drift", drift, stronger=current)
    yield task("Jumps100", "rates jump", jumps, stronger=current)
    yield task(
        "Phases100",
        "daily cycle, phases unknown",
        rates(name="cycle", amplitude=0.9, day=24.0, phase=_PHASES),
        m=4,
        stronger=(*current, "lagrangian-periodic"),
    )
    yield task(
        "SignalsUnknown50",
        "signals of unknown quality",
        {"signals": _QUALITY},
        "signals",
        n=50,
        m=3,
        steps=300,
        warmup=0,
    )
    yield task(
        "EngineService100",
        "an indexing engine that serves a fifth of the items published",
        {"engine": {"rate": 1.3, "capacity": 6, "service": "poisson"}},
        "engine",
        best="whittle-engine",
        errata=(
            "The recorded rewards of `whittle-engine`, which score 1, were measured before this "
            "policy became simpler. It now has other rewards in 6 of the 20 test runs: 2.470 "
            "instead of 2.465 on average, a score of 1.002 (no record is kept).",
        ),
    )
    yield task(
        "Regimes100",
        "10 topics with hidden regimes",
        {
            "sources": "drawn-sparse-100-topics-10",
            **rates(name="regimes", ratio=9.0, switch=0.01),
        },
        "topics",
        m=4,
        stronger=("whittle-regimes", *current),
    )

    def known(more: str) -> Arguments:
        return {**POISSON_UNOBSERVED, "features": [*DRAWN, more]}

    yield task(
        "Deadline60",
        "items pay at the end of a batch of 24 steps",
        {**known("steps_left"), "payoff": {"name": "deadline", "steps": 24}},
        "known, deadline",
        n=60,
        m=2,
        steps=480,
        warmup=240,
        best="whittle-deadline",
        stronger=("deadline-assignment", "planner"),
    )
    yield task(
        "Looks100",
        "a look costs a tenth of a crawl",
        {**known("seen"), "arrivals": "poisson-items", "look_cost": 0.1},
        "known, looks",
        m=3,
        steps=600,
        warmup=200,
        best="whittle-looks",
        errata=(
            "The recorded rewards of `whittle-looks`, which score 1, were measured when this "
            "policy selected crawls and looks in decreasing index. It now fills the budget as a "
            "knapsack, which gives 5.804 instead of 5.813 on average over the 20 test runs, a "
            "score of .998 (no record is kept).",
        ),
    )
    yield task(
        "Diminishing40",
        "diminishing returns in 5 topics",
        {
            **known("topic"),
            "sources": "drawn-dense-40-topics-8",
            "payoff": {"name": "diminishing", "limit": 60.0},
        },
        "known, topics",
        n=40,
        m=4,
        steps=600,
        warmup=200,
        best="greedy-topics",
        errata=(
            "The recorded rewards of `greedy-topics`, which score 1, were measured when this "
            "policy gave the Whittle index the same weight whatever a source holds, and took the "
            "expected content for certain. It now collects 179.28 instead of 176.95 on average "
            "over the 20 test runs, a score of 1.024 (no record is kept).",
        ),
    )
    yield task(
        "Stories20",
        "4 topics whose sources report the same stories, overlap unknown",
        {
            **known("known"),
            "sources": "drawn-sparse-20-topics-5",
            "arrivals": {"name": "stories", "overlap": 0.9},
        },
        "known, stories",
        n=20,
        m=2,
        steps=600,
        warmup=200,
        best="whittle-stories",
    )


def _general() -> Iterator[BenchmarkTask]:
    for n, steps, runs in ((10, 600, 40), (100, 600, 20), (1000, 400, 20), (100_000, 100, 3)):
        yield BenchmarkTask(
            name=f"General{n}",
            tier="general",
            group="One policy for fleets that it has not met, parameters observed, M = N/10",
            label=f"N = {n:,}, rates from .003 to 50",
            arguments={
                "sources": f"drawn-wide-{n}",
                "budget": n // 10,
                "features": list(DRAWN),
                **POISSON_UNOBSERVED,
            },
            steps=steps,
            warmup=100,
            seeds=runs,
            trains_on=("General10", "General100"),
        )


# The logs with the SHA-256 that `ItemLog.digest` has once they are read.
HACKER_NEWS = Recording(
    name="hacker-news",
    digest="6556d4bec2590167878f5cd0e4f7618fe98e16ad42a8ed4bfb3c071ed0229f82",
    start=0.0,
    split=5808.0,
    end=8760.0,
    decay_rate=0.222,
)
WEIBO = Recording(
    name="weibo",
    digest="e646a54c07b91bca49e1b6c16f0cd4318855973622e1582c93cf0d52faadd7eb",
    start=0.0,
    split=7792.0,
    end=11688.0,
    decay_rate=0.0556,
)
DEBIAN = Recording(
    name="debian-changelogs",
    start="2008-01-01",
    split="2018-01-01",
    end="2024-01-01",
    decay_rate=0.1,
)


def _recorded() -> Iterator[BenchmarkTask]:
    def task(
        name: str, label: str, recording: Recording, m: int, steps: int, warmup: int
    ) -> BenchmarkTask:
        return BenchmarkTask(
            name=name,
            tier="recorded",
            group="Recordings: the first part to train on, the second one is played from a step of "
            "each run on",
            label=label,
            arguments={"sources": RECORDED, "arrivals": RECORDED, "budget": m, "observed": False},
            information="items",
            steps=steps,
            warmup=warmup,
            recording=recording,
        )

    yield task(
        "HackerNews",
        "one year of the Hacker News front page, the last four months played hour by hour, M = 5",
        HACKER_NEWS,
        m=5,
        steps=672,
        warmup=168,
    )
    yield task(
        "Weibo",
        "sixteen months of Weibo's hot search, the last five played hour by hour, M = 4",
        WEIBO,
        m=4,
        steps=672,
        warmup=168,
    )
    yield task(
        "DebianChangelogs",
        "changelogs of the Debian packages of the machine, 2018–2023 played day by day, M = 3",
        DEBIAN,
        m=3,
        steps=600,
        warmup=200,
    )


TASKS: dict[str, BenchmarkTask] = {
    task.name: task
    for make in (_table1, _recovering, _random, _costs, _learning, _open, _general, _recorded)
    for task in make()
}

# Found by `python -m experiments core-tasks` with the agents of the package, and frozen: agents
# that are added do not change it.
CORE = ("Sparse100Harvest", "Dense100Harvest", "Drift100", "SignalsUnknown50", "Looks100")

# The names of the tasks that `tasks` returns together.
TASK_SETS: dict[str, tuple[str, ...]] = {
    "core": CORE,
    "trained": tuple(task.name for task in TASKS.values() if task.has_own_fleet),
    **{tier: tuple(x.name for x in TASKS.values() if x.tier == tier) for tier in TIERS},
}


def tasks(tier: str | None = None) -> dict[str, BenchmarkTask]:
    """Return the tasks of the benchmark by id: all, those of a tier, or those of another set.

    The other sets are "core", five tasks that stand for the tiers learning and open, and
    "trained", the tasks in which every run has one fleet, so that an agent may train in it.

    Raises:
        ValueError: there is no such tier or set.

    >>> list(tasks("core"))[0]
    'EphemeralCrawl/Sparse100Harvest-v0'
    >>> len(tasks("checks"))
    23
    """
    if tier is not None:
        check_choice("tier", tier, TASK_SETS)
    return {TASKS[name].id: TASKS[name] for name in (TASKS if tier is None else TASK_SETS[tier])}


def named(name: str) -> BenchmarkTask:
    """Return a task by its id, with or without the namespace, or its name.

    Raises:
        ValueError: there is no such task, or the id has another version.

    >>> named("EphemeralCrawl/Drift100-v0").label
    'rates drift, N = 100, M = 10'
    >>> named("Drift100-v0") is named("Drift100")
    True
    """
    if not isinstance(name, str):
        raise ValueError(f"task is {shown(name)}; give its name or its `id`")
    by_name = {**TASKS, **tasks(), **{key.rpartition("/")[2]: one for key, one in tasks().items()}}
    if name in by_name:
        return by_name[name]
    bare = name.rpartition("/")[2].rpartition("-v")[0]
    if bare in TASKS:
        raise ValueError(
            f"{name!r} is not the current version of this task, which is {TASKS[bare].id}; scores "
            "of different versions cannot be compared"
        )
    raise unknown("task", name, by_name if "/" in name else TASKS)
