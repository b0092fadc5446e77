"""One entrant in one task: what it collects, run by run, and that all met the same content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from experiments.adaptive.entrants import FLOOR, Entrant, Expected, name_of, seat, shown

_PER_DECADE = 20
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How long and how often the parts of the study are run."""

    seeds: int
    steps: int
    quick: bool  # fewer cases
    sources: int  # N where time is measured
    rounds: int  # how often it is
    seed: int = 0


QUICK = Size(seeds=4, steps=300, quick=True, sources=10_000, rounds=3)
FULL = Size(seeds=20, steps=2000, quick=False, sources=100_000, rounds=9)


class Run(NamedTuple):
    """S runs of an entrant, measured at K steps.

    The expected reward of crawls, given the ages at which they are made and the rates, omits the
    luck of what was published; it is exact where content is not observed.
    """

    marks: FloatArray  # (K,) steps done
    reward: FloatArray  # (S, K) collected until then
    expected: FloatArray  # (S, K) what these crawls collect on average; NaN where observed
    crawls: FloatArray  # (S, N) in the last quarter of the steps
    content: tuple[str, ...]  # of what was published: equal for entrants that met the same

    def until(self, step: int) -> int:
        """Return the position of a step among the marks.

        Raises:
            ValueError: nothing was measured there.
        """
        place = np.flatnonzero(self.marks == step)
        if not place.size:
            raise ValueError(f"nothing was measured at step {step}")
        return int(place[0])

    def second_half(self, expected: bool = True) -> FloatArray:
        """Return what was collected in the second half of the steps, (S,)."""
        total = self.expected if expected else self.reward
        return np.asarray(total[:, -1] - total[:, self.until(int(self.marks[-1]) // 2)])


class Found:
    """The runs of one part of the study, by case and entrant; jobs of the same entrant in the same
    case are seeds of one.

    Raises:
        ValueError: two entrants of a case did not meet the same content.
    """

    def __init__(self, todo: Sequence[Job], results: Sequence[Result]) -> None:
        self._runs: dict[tuple[str, str], Run] = {}
        self._parts: list[tuple[Job, Run, int]] = []
        for job, result in zip(todo, results, strict=True):
            key, run = (job["case"], name_of(job)), as_run(job, result)
            before = self._runs.get(key)
            self._parts.append((job, run, 0 if before is None else len(before.reward)))
            self._runs[key] = run if before is None else _joined(before, run)
        for case in self.cases:
            _check_paired(case, {name: self[case, name] for name in self.entrants(case)})

    def __getitem__(self, key: tuple[str, str]) -> Run:
        return self._runs[key]

    @property
    def cases(self) -> list[str]:
        return list(dict.fromkeys(case for case, _ in self._runs))

    def entrants(self, case: str) -> list[str]:
        return [name for of, name in self._runs if of == case]

    def budget(self, case: str) -> float:
        """Return M."""
        of = (job for job, _, _ in self._parts if job["case"] == case)
        return float(next(of)["arguments"]["budget"])

    def relative(self, case: str, name: str, best: str, expected: bool = True) -> Estimate:
        """Return the reward of the second half relative to another entrant's, of the mean run."""
        return statistics.ratio(
            *(self[case, entrant].second_half(expected) for entrant in (name, best))
        )

    def score(self, case: str, name: str, best: str, expected: bool = True) -> Estimate:
        """Return an entrant's score in the second half: 0 a random choice, 1 the best."""
        return statistics.score(
            *(self[case, entrant].second_half(expected) for entrant in (name, FLOOR, best))
        )

    def curves(self) -> Iterator[dict[str, Any]]:
        """Yield one row for each run and step that was measured."""
        for job, run, first in self._parts:
            for s in range(len(run.reward)):
                for k, mark in enumerate(run.marks):
                    yield {
                        **_labels(job, first + s),
                        "step": int(mark),
                        "collected": f"{run.reward[s, k]:.6g}",
                        "expected": f"{run.expected[s, k]:.6g}",
                    }

    def records(self, counts: Counts | None = None) -> Iterator[dict[str, Any]]:
        """Yield one row for each run; `counts` gives columns, one number a run, of these runs, a
        case and an entrant."""
        for job, run, first in self._parts:
            more = counts(self, job["case"], name_of(job)) if counts else {}
            for s in range(len(run.reward)):
                yield {
                    **_labels(job, first + s),
                    "seed": job["seed"],
                    "steps": int(run.marks[-1]),
                    "collected": repr(float(run.reward[s, -1])),
                    "second_half": repr(float(run.second_half(expected=False)[s])),
                    "second_half_expected": repr(float(run.second_half()[s])),
                    **{label: column[first + s].item() for label, column in more.items()},
                }


Counts = Callable[[Found, str, str], Mapping[str, NDArray[Any]]]


def job(
    part: str,
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
        "part": part,
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
    """Run a job; see `Run` for what it returns, as lists."""
    observed = bool(job["arguments"].get("observed", False))
    arguments = {
        "observed": False,
        **evaluation.arguments_of(job),
        "arrivals": arrivals_of(*job["arrivals"]),
        "features": shown(job["entrant"], observed),
    }

    def chosen(env: CrawlVectorEnv) -> Any:
        return seat(env, job["entrant"], job["seed"])

    rollout = Rollout(chosen, arguments, job["seeds"], job["seed"])
    world = rollout.env.world
    mean = Expected(world)
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
    drawn = json.dumps(rollout.env.np_random.bit_generator.state, sort_keys=True)
    return {
        "reward": np.array(reward).T.tolist(),
        "expected": np.array(expected).T.tolist(),
        "crawls": crawls.reshape(world.shape).tolist(),
        "content": hashlib.sha256(drawn.encode()).hexdigest()[:16],
    }


def arrivals_of(name: str, arguments: dict[str, Any]) -> ArrivalProcess:
    """Return arrivals from JSON: a model of the rate, in the words of the records, and its
    arguments. Items are drawn one by one, so that every entrant can be shown what it asks for."""
    model = {"poisson": "constant", "bursts": "hawkes"}.get(name, name)
    return Arrivals(rate=RATES[model](**arguments), sampler="items")


def as_run(job: Job, result: Result) -> Run:
    """Return the result of a job as arrays."""
    reward, expected, crawls = (
        np.array(result[name], dtype=np.float64) for name in ("reward", "expected", "crawls")
    )
    marks = np.array(job["marks"], dtype=np.float64)
    return Run(marks, reward, expected, crawls, (result["content"],))


def _joined(runs: Run, more: Run) -> Run:
    """Return the runs of two jobs, which are seeds of one entrant, as one."""
    return Run(
        runs.marks,
        np.concatenate((runs.reward, more.reward)),
        np.concatenate((runs.expected, more.expected)),
        np.concatenate((runs.crawls, more.crawls)),
        runs.content + more.content,
    )


def _check_paired(case: str, runs: dict[str, Run]) -> None:
    first, *others = runs
    for name in others:
        if runs[name].content != runs[first].content:
            raise ValueError(
                f"{case}: {name} and {first} did not meet the same content, so they cannot be "
                "compared; give both the same fleets, arrivals and seed"
            )


def _labels(job: Job, run: int) -> dict[str, Any]:
    return {"part": job["part"], "case": job["case"], "entrant": name_of(job), "run": run}
