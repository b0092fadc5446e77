"""One entrant in one task: what it collects, run by run, and the rows of the record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.evaluation import statistics
from agents.evaluation.rollout import Rollout
from agents.evaluation.statistics import Estimate
from crawl_env import ArrivalProcess, Arrivals, CrawlVectorEnv
from crawl_env.content.arrivals import RATES
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.runner import Job, Result
from experiments.adaptive.entrants import (
    FLOOR,
    REFERENCE,
    Entrant,
    ExpectedContent,
    name_of,
    seat,
    shown,
)
from experiments.core.data import Case, Cell, Data, versus
from experiments.core.study import Part

_PER_DECADE = 20
EXPECTED, COLLECTED = "second_half_expected", "second_half"  # columns of the record
RUNS, CURVES = "runs.csv.gz", "curves.csv.gz"  # files of the record
Rows = list[dict[str, Any]]


# -------------------------------------------------------------------------------------- the measure


def job(
    case: str,
    entrant: Entrant,
    arguments: dict[str, Any],
    steps: int,
    seeds: int,
    seed: int = 0,
    arrivals: tuple[str, dict[str, Any]] = ("poisson", {}),
    marks: Sequence[int] | None = None,
) -> Job:
    """Return an entrant's runs as a job; `marks` are the steps at which they are measured."""
    return {
        "case": case,
        "entrant": entrant,
        "arguments": arguments,
        "arrivals": list(arrivals),
        "steps": steps,
        "seeds": seeds,
        "seed": seed,
        "marks": list(marks_of(steps) if marks is None else marks),
    }


def marks_of(steps: int) -> list[int]:
    """Return the steps at which runs are measured, evenly spaced on a logarithmic scale."""
    number = max(2, int(_PER_DECADE * np.log10(steps)) + 1)
    spread = np.geomspace(1, steps, number).round().astype(int).tolist()
    return sorted({*spread, max(1, steps // 2), steps})


def work(job: Job) -> Result:
    """Run a job.

    Returns, as lists: `reward`, collected until each mark, (S, K); `expected`, what the crawls
    collect on average given the ages at which they are made and the rates, which omits the luck of
    what was published, (S, K), NaN where content is observed; `crawls` of each source in the last
    quarter, (S, N); and `content`, which is equal for entrants that met the same.
    """
    observed = bool(job["arguments"].get("observed", False))
    arguments = {
        "observed": False,
        **evaluation.arguments_of(job),
        "arrivals": arrivals_of(*job["arrivals"]),
        "features": shown(job["entrant"], observed),
    }

    def make_agent(env: CrawlVectorEnv) -> Any:
        return seat(env, job["entrant"], job["seed"])

    rollout = Rollout(make_agent, arguments, job["seeds"], job["seed"])
    world = rollout.env.world
    mean = ExpectedContent(world)
    marks, late = set(job["marks"]), job["steps"] - max(1, job["steps"] // 4)
    collected, average = np.zeros(job["seeds"]), np.zeros(job["seeds"])
    crawls = np.zeros(world.value.size)
    reward, expected = [], []
    for step in range(1, job["steps"] + 1):
        rate = world.rate
        collected = collected + rollout.step()
        picked = rollout.env.harvest.picked
        average = average + mean.crawl(picked, rate)
        if step > late:
            crawls[picked] += 1
        if step in marks:
            reward.append(collected)
            expected.append(np.full_like(average, np.nan) if observed else average)
    # What arrives takes all that is drawn from this generator, whatever is crawled or shown.
    state = json.dumps(rollout.env.np_random.bit_generator.state, sort_keys=True)
    return {
        "reward": np.array(reward).T.tolist(),
        "expected": np.array(expected).T.tolist(),
        "crawls": crawls.reshape(world.shape).tolist(),
        "content": hashlib.sha256(state.encode()).hexdigest()[:16],
    }


def arrivals_of(name: str, arguments: dict[str, Any]) -> ArrivalProcess:
    """Return arrivals from JSON: a model of the rate, in the words of the records, and its
    arguments. Items are drawn one by one, so that every entrant can be shown what it asks for."""
    model = {"poisson": "constant", "bursts": "hawkes"}.get(name, name)
    return Arrivals(rate=RATES[model](**arguments), sampler="items")


# --------------------------------------------------------------------------------------- the record


def check_paired(todo: Sequence[Job], results: Sequence[Result]) -> None:
    """Raise ValueError if two entrants of a case did not meet the same content."""
    contents: dict[str, dict[str, list[str]]] = {}
    for job, result in zip(todo, results, strict=True):
        contents.setdefault(job["case"], {}).setdefault(name_of(job), []).append(result["content"])
    for case, by_name in contents.items():
        first, *others = by_name
        for name in others:
            if by_name[name] != by_name[first]:
                raise ValueError(
                    f"{case}: {name} and {first} did not meet the same content, so they cannot be "
                    "compared; give both the same fleets, arrivals and seed"
                )


def tables(todo: Sequence[Job], results: Sequence[Result]) -> dict[str, Rows]:
    """Return the rows of the runs.

    Raises:
        ValueError: two entrants of a case did not meet the same content.
    """
    check_paired(todo, results)
    return {RUNS: rows_of(todo, results)}


def with_curves(todo: Sequence[Job], results: Sequence[Result]) -> dict[str, Rows]:
    """Return the rows of the runs and of the curves; errors as of `tables`."""
    return {**tables(todo, results), CURVES: curves_of(todo, results)}


def rows_of(todo: Sequence[Job], results: Sequence[Result]) -> Rows:
    """Return a row for each run; jobs of the same entrant in the same case are seeds of one."""
    return [
        {
            **labels,
            "seed": job["seed"],
            "steps": job["marks"][-1],
            "collected": repr(float(reward[-1])),
            COLLECTED: repr(float(reward[-1] - reward[half])),
            EXPECTED: repr(float(expected[-1] - expected[half])),
        }
        for job, labels, reward, expected in _runs(todo, results)
        for half in [job["marks"].index(job["marks"][-1] // 2)]
    ]


def curves_of(todo: Sequence[Job], results: Sequence[Result]) -> Rows:
    """Return a row for each run and mark."""
    return [
        {**labels, "step": mark, "collected": f"{reward[k]:.6g}", "expected": f"{expected[k]:.6g}"}
        for job, labels, reward, expected in _runs(todo, results)
        for k, mark in enumerate(job["marks"])
    ]


def _runs(
    todo: Sequence[Job], results: Sequence[Result]
) -> Iterator[tuple[Job, dict[str, Any], FloatArray, FloatArray]]:
    """Yield the job, the labels, what is collected and what is expected, (K,), of each run."""
    before: dict[tuple[str, str], int] = {}
    for job, result in zip(todo, results, strict=True):
        key = job["case"], name_of(job)
        for reward, expected in zip(result["reward"], result["expected"], strict=True):
            run = before[key] = before.get(key, -1) + 1
            labels = {"case": key[0], "entrant": key[1], "run": run}
            yield job, labels, np.array(reward), np.array(expected, dtype=np.float64)


def crawls_of(
    todo: Sequence[Job], results: Sequence[Result]
) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return the crawls of each source in the last quarter, (S, N), by case and entrant."""
    by_key: dict[tuple[str, str], list[Any]] = {}
    for job, result in zip(todo, results, strict=True):
        by_key.setdefault((job["case"], name_of(job)), []).extend(result["crawls"])
    return {key: np.array(crawls, dtype=np.float64) for key, crawls in by_key.items()}


def played(**of_part: Any) -> Part:
    """Return a part of the study whose jobs are runs of entrants."""
    return Part(**{"work": work, "tables": tables, "files": (RUNS,), **of_part})


# ----------------------------------------------------------------------------- what is shown of it

RUN = {"step": ""}  # rows of runs; those of curves have a step


def relative(best: str = REFERENCE, column: str = EXPECTED) -> Cell:
    """Return the cell of the reward of the second half relative to another entrant's."""
    return versus(statistics.ratio, column, entrant=best)


def score(best: str = REFERENCE, column: str = EXPECTED) -> Cell:
    """Return the cell of the score in the second half: 0 a random choice, 1 the best."""

    def cell(data: Data, case: Case) -> Estimate:
        mine, floor, most = (
            data.numbers(column, **{**case, "entrant": who})
            for who in (case["entrant"], FLOOR, best)
        )
        return statistics.score(mine, floor, most)

    return cell


def curve(data: Data, case: Case, entrant: str) -> FloatArray:
    """Return the mean harvest of an entrant's crawls until each mark, (S, K)."""
    case = {"case": case["case"], "entrant": entrant}
    steps = [step for step in data.values("step", **case) if step]
    return np.array([data.numbers("expected", **case, step=step) for step in steps]).T


def marks(data: Data, case: Case) -> FloatArray:
    """Return the steps of the marks of a case, (K,)."""
    steps = data.values("step", case=case["case"], entrant=REFERENCE)
    return np.array([float(step) for step in steps if step])
