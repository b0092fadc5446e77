"""The options that `evaluate` and `replay` share, and what both make of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from agents.adaptive.base import Adaptive
from agents.inference.content import HarvestSums
from agents.policies.industry import Rule
from agents.policies.simple import PingFirst
from agents.registry import AGENTS, ON_REQUEST, find
from crawl_env import Engine, Signals, Sources
from crawl_env.content.engine import Discipline, Service
from crawl_env.numerics import FloatArray
from crawl_env.simulation.task import make_sources
from ephemeral_crawl.comparison import indexing
from ephemeral_crawl.comparison.present import Present, since_last_crawl
from ephemeral_crawl.core import question
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Runner
from ephemeral_crawl.core.study import Content, ParallelStudy
from ephemeral_crawl.core.tables import FLOOR, REFERENCE

_NAMES = ", ".join(AGENTS)
# What a fetch reveals of single items.
_REVEALED = ("age", "crawled", "items", *HarvestSums.features)

# Not part of the question that a report answers.
_HOW = ("out", "jobs", "engine", "replace")


@dataclass(kw_only=True)
class ComparisonStudy(ParallelStudy):
    """A comparison of policies on a fleet under one budget or several."""

    known: ClassVar[tuple[str, ...]] = tuple(AGENTS)  # names of --agents
    outputs: ClassVar[tuple[str, ...]] = (
        "schedule.csv",
        "schedule.parquet",
        "sources.csv",
        "signals.csv",
        question.FILE,
        *ParallelStudy.outputs,
    )

    budget: Annotated[str, tyro.conf.arg(metavar="M[,M…]")] = ""
    """M: the cost of the crawls that is allowed per step. Several, such as 3,4,8, also give the
    utility as a function of the budget."""
    period: float = 1.0
    """T: length of a step, in the unit of time of the rates."""
    present: Annotated[
        str,
        tyro.conf.arg(
            metavar="RULE|CSV",
            help="Your present rule, to be compared with: the name of a policy (see --agents), or "
            "a CSV with the columns source, interval (time between two crawls; empty: never).",
        ),
    ] = ""
    last_crawls: Annotated[str, tyro.conf.arg(metavar="CSV")] = ""
    """When each source was last crawled, from which next_crawl in schedule.csv follows: a CSV with
    the columns source, since (time from its last crawl until now, or until the end of the log;
    empty: never). By default no source was crawled before."""
    max_interval: Annotated[float, tyro.conf.arg(metavar="TIME")] = 0.0
    """Crawl every source at least once in this time, and say what that costs; 0 for no limit."""
    recall: float | None = None
    """Signals: the fraction of the items of every source that trigger a ping. By default that of
    the fleet's column recall, and none without it."""
    precision: float | None = None
    """Signals: the fraction of the pings that an item triggered; the others are false. By default
    that of the fleet's column precision, and 1 without it."""
    delay: Annotated[float | None, tyro.conf.arg(metavar="TIME")] = None
    """Signals: the mean time from an item to its ping. By default that of the fleet's column
    signal_delay, and 0 without it."""
    engine_rate: Annotated[float | None, tyro.conf.arg(metavar="S")] = None
    """Indexing engine: the items that it indexes per step. Utility then counts when an item is
    indexed. By default everything is indexed in the step in which it is collected."""
    engine_capacity: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Indexing engine: the items that can wait from one step to the next; others are lost. By
    default any number."""
    engine_discipline: Discipline | None = None
    """Indexing engine: whether it indexes items in the order in which they were collected (fifo,
    the default), or the most valuable first (value)."""
    engine_service: Service | None = None
    """Indexing engine: whether it indexes the same number in every step (deterministic, the
    default), or a random one of that mean (poisson)."""
    engine_threshold: Annotated[float | None, tyro.conf.arg(metavar="UTILITY")] = None
    """Indexing engine: items worth less than this when they are collected are refused; by default
    none."""
    observed: bool = False
    """Whether the crawler observes the uncollected utility of a source before crawling it."""
    budget_rule: Literal["step", "average"] = "step"
    """Whether the budget holds in every step, or on average, as a token bucket."""
    per_host: int = 1
    """Maximum number of crawls per step of sources that share a host."""
    agents: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            help=f"Policies to compare: {_NAMES}. {REFERENCE} and {FLOOR} are always included; "
            "whittle-exact only if random content is observed or announced by signals, since it is "
            f"the same as whittle otherwise; and {', '.join(ON_REQUEST)} only if they are named, "
            f"but for {PingFirst.name} with signals."
        ),
    ] = tuple(name for name in AGENTS if name not in ON_REQUEST)
    seed: int = 0
    """Seed of all random draws."""
    quick: bool = False
    """A first answer in seconds: few runs and steps, and a sample of at most 300 sources, with the
    budget scaled to it. The schedule is of all sources all the same."""
    replace: bool = False
    """Replace the results in --out even if they answer another question."""

    # ------------------------------------------------------------------------ the folder

    def check(self, *inputs: str | Path | None) -> None:
        super().check(*inputs)
        question.check_question(self.folder, self._question, self.replace)
        _ = self._signals, self._engine  # raise ValueError for impossible values

    def publish(self, report: Report, files: Mapping[str, Content], forget: bool = True) -> None:
        text = question.text_of(self._question)
        super().publish(report, {**files, question.FILE: text}, forget)

    @property
    def _question(self) -> question.Question:
        return question.question(self.name(), self._asked())

    def _asked(self) -> dict[str, Any]:
        """Return the options that make the question, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _HOW}

    @property
    def runner(self) -> Runner:
        """Return the runner; a first answer takes less time than processes take to start."""
        made = super().runner
        return Runner(made.kept, 1, "sequential") if self.quick else made

    # ------------------------------------------------------------------------ the options

    def _budgets(self) -> list[float]:
        found = []
        for word in self.budget.split(","):
            try:
                found += [float(word)] if word.strip() else []
            except ValueError:
                raise ValueError(
                    f"--budget has {word!r}, which is not a number; write --budget 2.5, or "
                    "--budget 1,2,5,10 for several"
                ) from None
        if not found:
            raise ValueError(
                "no budget was given; give --budget 5, or --budget 1,2,5,10 for several"
            )
        return sorted(set(found))

    def _names(self, signalled: bool = False) -> tuple[str, ...]:
        """Return the policies to compare; if the sources send signals, also the usual rule that
        fetches whatever pinged, and with an indexing engine the policy that heeds it."""
        for name in self.agents:
            if name not in self.known:
                find(name)
        more = (PingFirst.name,) * signalled + (indexing.HEEDS,) * (self._engine is not None)
        return tuple(dict.fromkeys((REFERENCE, *self.agents, *more, FLOOR)))

    def _present(self, fleet: Sources) -> Present | None:
        return Present.of(self.present, fleet) if self.present else None

    def _since(self, fleet: Sources) -> FloatArray | None:
        return since_last_crawl(self.last_crawls, fleet) if self.last_crawls else None

    @property
    def _signals(self) -> Signals | None:
        """Return the signals that the options describe; None without these options."""
        quality = self.recall, self.precision, self.delay
        return Signals(*quality) if any(x is not None for x in quality) else None

    @property
    def _engine(self) -> Engine | None:
        """Return the indexing engine that the options describe; None without these options."""
        names = [field.name for field in fields(Engine)]
        given = {name: getattr(self, f"engine_{name}") for name in names}
        given = {name: value for name, value in given.items() if value is not None}
        if not given:
            return None
        if "rate" not in given:
            raise ValueError(
                f"--engine-{next(iter(given))} describes an indexing engine whose rate is missing; "
                "give --engine-rate, the items that it indexes per step, too"
            )
        try:
            engine = Engine(**given)
        except ValueError as error:
            raise ValueError(f"--engine-{error}") from None
        if math.isinf(engine.rate):
            raise ValueError(
                "--engine-rate is inf, an engine that indexes everything; leave the option out"
            )
        return engine

    def _with_signals(self, fleet: Sources) -> Sources:
        """Return the fleet with the signals that the options give."""
        given = self._signals
        if given is not None:
            if self.recall is None and not fleet.is_signalled:
                raise ValueError(
                    "--precision and --delay say how good signals are, but no source sends any; "
                    "give --recall, the fraction of the items that trigger a ping, too"
                )
            fleet = given.of(fleet)
        if fleet.is_signalled and self.observed:
            raise ValueError(
                "--observed is given with signals, which tell nothing of content that is observed "
                "anyway; leave out one of them"
            )
        return fleet

    def _longest(self, period: float) -> float:
        """Return the maximum interval in steps."""
        if self.max_interval == 0:
            return math.inf
        if not period <= self.max_interval < math.inf:
            raise ValueError(
                f"--max-interval is {self.max_interval:g}; it must be at least one step, which is "
                f"{period:g}"
            )
        return self.max_interval / period

    def _conditions(self) -> str:
        observed = "observed" if self.observed else "not observed"
        budget = "in every step" if self.budget_rule == "step" else "on average"
        engine = f", in front of {self._engine!r}" * (self._engine is not None)
        return f"content {observed} before crawling, budget enforced {budget}{engine}"


def fleet_of(text: str, period: float) -> Sources:
    """Return the fleet of a file, or the preset of a name."""
    path = Path(text)
    return make_sources(path if path.exists() else text).with_period(period)


def features_of(agent: str) -> Sequence[str]:
    """Return the features that an agent is shown: those that learn from their crawls get what a
    fetch reveals of single items, where these exist."""
    kind = AGENTS.get(agent)
    learns = isinstance(kind, type) and issubclass(kind, (Adaptive, Rule))
    return ["value", *_REVEALED] if learns else ["value"]
