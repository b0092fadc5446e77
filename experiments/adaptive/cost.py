"""What learning costs in time: a step of every agent beside one of Whittle, at one size."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple, cast

from tqdm import tqdm

from agents.evaluation.rollout import Rollout
from agents.policies.base import Predictor
from crawl_env import CrawlVectorEnv, Sources
from crawl_env.fleet.parameters import PARAMETERS
from ephemeral_crawl.core.runner import Job, Result
from experiments.adaptive.entrants import (
    CERTAINTY,
    OPTIMISM,
    REFERENCE,
    THOMPSON,
    TUNING,
    agent_of,
    entrant,
    name_of,
    named,
    shown,
)
from experiments.adaptive.runs import RUNS
from experiments.core.clock import Timing, Watch
from experiments.core.data import Case, Cell, Column, Data, Table
from experiments.core.study import Part

ROUND = 10  # N/M
_WARM = 60  # steps before any is timed: six crawls of each source on average
_AT_ONCE = 5  # steps timed together
ENTRANTS = [
    entrant(CERTAINTY),
    entrant(OPTIMISM),
    entrant(THOMPSON),
    *(
        named(f"thompson, {name}", entrant(THOMPSON, name))
        for name in ("fleet-prior", "forgetting", "drifting")
    ),
    named("thompson, changed", entrant(THOMPSON, "changed", "changed")),
    *(
        named(f"self-tuning{words}", entrant(TUNING, estimator, brought))
        for words, estimator, brought in (
            (", utility alone", None, "harvest"),
            (", number and utility", None, "items"),
            (", sums over the items", None, "sums"),
            (", sums, keeps all", "gamma-poisson", "sums"),
        )
    ),
]


class Cost(NamedTuple):
    """Seconds of an entrant, and of Whittle in a world that shows the same, round by round."""

    name: str
    shown: str
    step: Timing  # of the agent and the environment
    decision: Timing  # of the agent alone
    best_step: Timing
    best_decision: Timing


def measure(n: int, rounds: int, candidates: Sequence[dict[str, Any]] = ENTRANTS) -> list[Cost]:
    """Time entrants one after the other, again and again."""
    worlds = dict.fromkeys(candidate["brought"] for candidate in candidates)
    references = {brought: _Seat(entrant(REFERENCE), brought, n) for brought in worlds}
    seats = [_Seat(candidate, candidate["brought"], n) for candidate in candidates]
    for _ in tqdm(range(rounds), unit="round"):
        for seat in (*references.values(), *seats):
            seat.round()
    return [
        Cost(name_of({"entrant": candidate}), candidate["brought"], *seat.timings(),
             *references[candidate["brought"]].timings())
        for candidate, seat in zip(candidates, seats, strict=True)
    ]  # fmt: skip


class _Seat:
    """An entrant in a world that shows what comes with `brought`, and no more."""

    def __init__(self, candidate: dict[str, Any], brought: str, n: int) -> None:
        features, self._watch = shown(entrant(TUNING, brought=brought)), Watch(perf_counter)
        arguments = {
            "sources": Sources.random(n, seed=0),
            "budget": n // ROUND,
            "observed": False,
            "arrivals": "poisson-items",
            # Of one fleet parameters come with the task, and need not come with each observation.
            "features": tuple(name for name in features if name not in PARAMETERS),
        }

        def timed(env: CrawlVectorEnv) -> Predictor:
            agent: Any = agent_of(candidate, env.task)
            agent.predict = self._watch.around(agent.predict)
            return cast(Predictor, agent)

        self._rollout = Rollout(timed, arguments)
        self._steps: list[float] = []
        self._decisions: list[float] = []
        for _ in range(_WARM):
            self._rollout.step()

    def round(self) -> None:
        self._watch.seconds, start = 0.0, perf_counter()
        for _ in range(_AT_ONCE):
            self._rollout.step()
        self._steps.append((perf_counter() - start) / _AT_ONCE)
        self._decisions.append(self._watch.seconds / _AT_ONCE)

    def timings(self) -> tuple[Timing, Timing]:
        """Return the time of a step, and of the decision in it."""
        return Timing(tuple(self._steps)), Timing(tuple(self._decisions))


def jobs(study: Any) -> list[Job]:
    """Return the one job, which times all in turn."""
    n, rounds = (10_000, 3) if study.size.quick else (100_000, 9)
    return [{"sources": n, "rounds": rounds}]


def work(job: Job) -> Result:
    """Return one row for each entrant and turn."""
    columns = {
        "step_seconds": "step",
        "whittle_step_seconds": "best_step",
        "decision_seconds": "decision",
        "whittle_decision_seconds": "best_decision",
    }
    return {
        "rows": [
            {
                "case": f"N = {job['sources']}",
                "entrant": cost.name,
                "run": i,
                **{name: f"{getattr(cost, x).rounds[i]:.6g}" for name, x in columns.items()},
            }
            for cost in measure(job["sources"], job["rounds"])
            for i in range(job["rounds"])
        ]
    }


def _timing(data: Data, case: Case, name: str) -> Timing:
    return Timing(tuple(data.numbers(f"{name}_seconds", **case).tolist()))


def _milliseconds(name: str) -> Cell:
    return lambda data, case: f"{1e3 * _timing(data, case, name).median:.1f}"


def _times_whittle(name: str) -> Cell:
    """Return the cell of the ratio to Whittle: median, smallest and largest of the turns."""
    return lambda data, case: _timing(data, case, name).ratio_to(
        _timing(data, case, f"whittle_{name}")
    )


def _ratio(interval: tuple[float, float, float]) -> str:
    middle, low, high = interval
    return f"{middle:.2f} ({low:.2f} … {high:.2f})"


def claim(data: Data) -> str:
    """Return the time that learning takes."""
    ratio = _times_whittle("step")
    slowest = max(data.cases("case", "entrant"), key=lambda case: ratio(data, case)[0])
    return (
        f"a step at {slowest['case']} takes at most {ratio(data, slowest)[0]:.1f} times as long "
        f"({slowest['entrant']})"
    )


PART = Part(
    jobs=jobs,
    work=work,
    file=RUNS,
    alone=True,
    heading="What it takes in time",
    content=(
        "A tenth of the sources is crawled in each step, not observed: the time of one step of the "
        "agent and the environment, and of the agent alone, beside whittle, which knows the rates, "
        "in an environment that shows the same. All take turns, "
        f"{_AT_ONCE} steps each, after {_WARM} that are not timed; medians over the turns, ratios "
        "within one turn, with the smallest and the largest.",
        Table(
            "{case}",
            {"entrant": "agent"},
            (
                Column("step, ms", _milliseconds("step"), str),
                Column("× whittle", _times_whittle("step"), _ratio),
                Column("agent alone, ms", _milliseconds("decision"), str),
                Column("× whittle", _times_whittle("decision"), _ratio),
            ),
            each=("case",),
        ),
    ),
    claim=claim,
)
