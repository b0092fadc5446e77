"""`python -m experiments engine`: crawling for an engine that cannot index everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from agents.evaluation import statistics
from agents.theory.engine.relaxation import engine_relaxation
from crawl_env import Task
from ephemeral_crawl.core.evaluation import arguments_of, percent
from ephemeral_crawl.core.runner import Job
from experiments.core import recordings
from experiments.core.data import (
    Across,
    Case,
    Cell,
    Data,
    Lines,
    Table,
    gain,
    mean,
    share,
    total,
    versus,
)
from experiments.core.study import Part, Recordings, Size, SuiteStudy
from experiments.engine import small
from experiments.signals.tasks import job

PLAIN, OURS = "whittle", "whittle-engine"
AGENTS = (PLAIN, OURS, "myopic", "static", "fixed", "oldest-first")
NEVER, STALE = "none", "the price κ*"
_BUFFER = 5  # steps of service that can wait


def _engine(rate: float, threshold: float, **more: Any) -> dict[str, Any]:
    """Return the argument `engine` as JSON."""
    capacity = max(1, round(_BUFFER * rate))
    common = {"rate": rate, "capacity": capacity, "service": "poisson", "threshold": threshold}
    return {"engine": common | more}


# ----------------------------------------------------------------------------------------- service

# By name: the argument `sources` and the crawls per step.
FLEETS = {"fleet F": ("fleet-f", 5), "sparse": ("random-sparse-50-0", 3)}
SERVICE = (3.0, 1.0, 0.5, 0.2)  # of the items published
_SURE = 0.999  # level of the intervals that say which policy is clearly behind, of many


def _service_jobs(study: Any) -> list[Job]:
    size: Size = study.size
    jobs = []
    for fleet, (sources, budget) in list(FLEETS.items())[: 1 if size.quick else None]:
        parameters = Task(**arguments_of({"arguments": {"sources": sources}})).sources
        flow = float(parameters.arrival_rate.sum() * parameters.period)
        for service in SERVICE[2:3] if size.quick else SERVICE:
            price = engine_relaxation(parameters, budget, service * flow).price
            # Items that lose to others of the queue are refused by its order already.
            for discipline, threshold in (("fifo", NEVER), ("fifo", STALE), ("value", NEVER)):
                level = price if threshold == STALE else 0.0
                columns: Any = {
                    "discipline": discipline,
                    "service": service,
                    "threshold": threshold,
                    "price": price,
                    "steps": size.steps,
                }
                engine = _engine(service * flow, level, discipline=discipline)
                task = fleet, sources, budget
                jobs += [job(size, task, agent, engine, **columns) for agent in AGENTS]
    return jobs


def _gain(level: float = 0.95) -> Cell:
    """Return the cell of what whittle-engine gains over the agent of a case."""

    def cell(data: Data, case: Case) -> Any:
        over = gain("reward", "published", level, agent=case["agent"])
        return over(data, {**case, "agent": OURS})

    return cell


_REFUSING = gain("reward", "published", threshold=NEVER)


def _service_claim(data: Data) -> str:
    fleets, scarce = data.values("fleet"), data.values("service")[-1]
    case = {"discipline": "fifo", "service": scarce, "threshold": NEVER}
    gains = ", ".join(
        f"{percent(_gain()(data, {**case, 'fleet': one, 'agent': PLAIN}))} on {one}"
        for one in fleets
    )
    cases = data.cases("fleet", "discipline", "service", "threshold")
    behind = ", ".join(
        f"{agent} in {sum(_gain(_SURE)(data, {**one, 'agent': agent}).high < 0 for one in cases)}"
        for agent in AGENTS
        if agent != OURS
    )
    plain, own = (
        percent(_REFUSING(data, {**case, "fleet": fleets[0], "threshold": STALE, "agent": agent}))
        for agent in (PLAIN, OURS)
    )
    return (
        f"Where the engine can index {float(scarce):.0%} of what is published, first in, first "
        f"out, whittle-engine gains over the plain Whittle index: {gains}. On {fleets[0]} refusing "
        f"items worth less than κ* brings whittle {plain} more, and whittle-engine {own}. Of "
        f"{len(cases)} cases whittle-engine is clearly ({_SURE:.1%}) behind {behind}."
    )


_OTHERS = tuple(agent for agent in AGENTS if agent != OURS)
SERVICE_LEVELS = Part(
    jobs=_service_jobs,
    heading="Service from ample to scarce",
    content=(
        "Fleet F: 25 sources of five kinds, M = 5; sparse: 50 sources of .003 to .3 items per "
        "step, M = 3. Arrivals are Poisson, utilities exponential, nothing is known of content "
        "before a crawl. The engine indexes a Poisson number of items per step, whose mean is the "
        f"given multiple of what is published, and {_BUFFER} steps of its service can wait. All "
        "policies meet the same arrivals; 95 % intervals (Student's t over the runs). Refused: "
        "items worth less than κ* of the relaxation when they are collected.",
        Lines(
            "Reward as a fraction of the relaxed bound of two budgets, which holds for every order "
            "and threshold; nothing is refused. Bars are the 95 % intervals.",
            x="service",
            y=mean("reward", "bound"),
            line="agent",
            rows="fleet",
            columns="discipline",
            where={"threshold": NEVER},
            labels=("service / items published", "fraction of the bound"),
            log="x",
        ),
        Table(
            "Fraction of the bound: {fleet}, {discipline}, refused below {threshold}",
            {"service": "service"},
            (Across("agent", (mean("reward", "bound"),)),),
            each=("fleet", "discipline", "threshold"),
        ),
        Table(
            "Gain of whittle-engine over the others, on the same arrivals",
            {
                "fleet": "fleet",
                "discipline": "discipline",
                "threshold": "refused below",
                "service": "service",
            },
            (Across("agent", (_gain(),), only=_OTHERS),),
        ),
        Table(
            "Gain by refusing items worth less than κ*, first in, first out",
            {"fleet": "fleet", "service": "service"},
            (Across("agent", (_REFUSING,)),),
            where={"discipline": "fifo", "threshold": STALE},
        ),
    ),
    claim=_service_claim,
)

# -------------------------------------------------------------------------------------- recordings

INVENTED = "invented"  # the log of `ephemeral-crawl example`
RECORDED_SERVICE = (2.0, 0.5, 0.2)  # of the items published
BUDGET, RUNS = 5, 4


def _recording_jobs(study: Any) -> list[Job]:
    size: Size = study.size
    return [
        recordings.job(
            name,
            folder,
            size,
            RUNS,
            agent,
            {
                "budget": BUDGET,
                "observed": False,
                "features": ["age", "backlog"],
                **_engine(rate, level),
            },
            service=service,
            threshold=threshold,
        )
        for name, folder in recordings.folders(size) or [(INVENTED, "")]
        for fleet in [recordings.read(folder).fleet]
        for service in (RECORDED_SERVICE[1:2] if size.quick else RECORDED_SERVICE)
        for rate in [service * float(fleet.arrival_rate.sum() * fleet.period)]
        for price in [engine_relaxation(fleet, BUDGET, rate).price]
        for threshold, level in ((NEVER, 0.0), (STALE, price))[: 1 if size.quick else None]
        for agent in AGENTS[: 2 if size.quick else None]
    ]


_OVER_PLAIN = versus(statistics.gain, "reward", agent=PLAIN)


def _recording_claim(data: Data) -> str:
    cases = data.cases("recording", "service", threshold=NEVER, agent=OURS)
    gains = "; ".join(
        f"{percent(_OVER_PLAIN(data, case))} on {case['recording']} at service {case['service']}"
        for case in cases
    )
    return f"On recorded arrivals whittle-engine gains over the plain index: {gains}."


RECORDED = Part(
    jobs=_recording_jobs,
    work=recordings.replayed,
    rows=recordings.each_week,
    heading="Recorded arrivals",
    content=(
        f"Rates are fitted to two thirds of a recording; the rest is replayed hour by hour, M = "
        f"{BUDGET}, with a Poisson engine whose service is a multiple of the items that the fitted "
        f"fleet publishes, {_BUFFER} steps of which can wait, first in, first out. Means of {RUNS} "
        "runs that start one step after the other. 95 % intervals of the gains over the plain "
        "index are over weeks, as if these were independent.",
        Lines(
            "Utility indexed, as a part of what is published, by the threshold below which items "
            "are refused.",
            x="service",
            y=total("reward", "published"),
            line="agent",
            rows="threshold",
            columns="recording",
            labels=("service / items published", "indexed, % of published"),
            scale=100,
            log="x",
        ),
        Table(
            "Gain over whittle in front of the same engine; whittle: share of what is published",
            {"recording": "recording", "service": "service", "threshold": "refused below"},
            (
                Across("agent", (total("reward", "published"),), share, (PLAIN,)),
                Across("agent", (_OVER_PLAIN,), only=AGENTS[1:]),
            ),
        ),
    ),
    claim=_recording_claim,
)

# ----------------------------------------------------------------------------------------- command


@dataclass(kw_only=True)
class Engine(SuiteStudy):
    """What a crawler loses that ignores the indexing engine behind it, as its service falls from
    ample to scarce, and what refusing stale items and an index that heeds the engine win."""

    title: ClassVar[str] = "Crawling for an indexing engine"
    parts: ClassVar[Mapping[str, Part]] = {
        "service": SERVICE_LEVELS,
        "exact": small.EXACT,
        "learner": small.LEARNER,
        "recordings": RECORDED,
    }
    sizes: ClassVar[Mapping[str, Size]] = {
        "quick": Size(seeds=4, steps=120, warmup=30, quick=True),
        "full": Size(seeds=16, steps=1000, warmup=200),
    }

    part: tuple[Literal["service", "exact", "learner", "recordings"], ...] = ()
    """Parts to run; the recorded tables of the others are kept. By default all are run; where no
    recordings are given, the log that `ephemeral-crawl example` writes stands for one."""
    recordings: Recordings = ()
    """Folders of recordings, each with items.csv.gz and curves.csv.gz (see `replay`)."""
