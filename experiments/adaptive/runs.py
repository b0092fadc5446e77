"""One player in one world: what it collects, run by run, and that all met the same content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.evaluation import statistics
from agents.evaluation.rollout import Rollout
from agents.evaluation.statistics import Estimate
from crawl_env import ArrivalProcess, Arrivals, CrawlVectorEnv
from crawl_env.content.arrivals import RATES
from crawl_env.numerics import FloatArray
from experiments.adaptive.expected import Expected
from experiments.adaptive.players import FLOOR, features, name_of, seat
from experiments.core import evaluation
from experiments.core.runner import Job, Result

_PER_DECADE = 20

Rows = list[dict[str, Any]]


class Run(NamedTuple):
    """S runs of a player, measured at K epochs.

    What crawls are expected to bring, given the ages at which they are made and the rates, does
    without the luck of what was published; it is exact where content is not seen.
    """

    marks: FloatArray  # (K,) epochs done
    reward: FloatArray  # (S, K) collected until then
    expected: FloatArray  # (S, K) what these crawls bring on average; NaN where content is seen
    published: FloatArray  # (S,) items published in all
    crawls: FloatArray  # (S, N) in the last quarter of the epochs

    def until(self, epoch: int) -> int:
        """Return the place of an epoch among the marks.

        Raises:
            ValueError: nothing was measured there.
        """
        place = np.flatnonzero(self.marks == epoch)
        if not place.size:
            raise ValueError(f"nothing was measured at epoch {epoch}")
        return int(place[0])

    def second_half(self, expected: bool = True) -> FloatArray:
        """Return what the second half of the epochs brought, (S,)."""
        total = self.expected if expected else self.reward
        return np.asarray(total[:, -1] - total[:, self.until(int(self.marks[-1]) // 2)])


class Found:
    """The runs of one part of the experiment, by case and player; units of the same player in the
    same case are seeds of one.

    Raises:
        ValueError: two players of a case did not meet the same content.
    """

    def __init__(self, todo: Sequence[Job], results: Sequence[Result]) -> None:
        self._runs: dict[tuple[str, str], Run] = {}
        self._parts: list[tuple[Job, Run, int]] = []
        for unit, result in zip(todo, results, strict=True):
            key, run = (unit["case"], name_of(unit)), as_run(unit, result)
            before = self._runs.get(key)
            self._parts.append((unit, run, 0 if before is None else len(before.reward)))
            self._runs[key] = run if before is None else _joined(before, run)
        for case in self.cases:
            _check_paired(case, {name: self[case, name] for name in self.players(case)})

    def __getitem__(self, key: tuple[str, str]) -> Run:
        return self._runs[key]

    @property
    def cases(self) -> list[str]:
        return list(dict.fromkeys(case for case, _ in self._runs))

    def players(self, case: str) -> list[str]:
        return [name for of, name in self._runs if of == case]

    def budget(self, case: str) -> float:
        """Return M."""
        of = (unit for unit, _, _ in self._parts if unit["case"] == case)
        return float(next(of)["arguments"]["budget"])

    def share(self, case: str, name: str, best: str, expected: bool = True) -> Estimate:
        """Return the share of what another player brings in the second half, of the mean run."""
        return statistics.ratio(
            *(self[case, player].second_half(expected) for player in (name, best))
        )

    def score(self, case: str, name: str, best: str, expected: bool = True) -> Estimate:
        """Return a player's score in the second half: 0 a random choice, 1 the best."""
        return statistics.score(
            *(self[case, player].second_half(expected) for player in (name, FLOOR, best))
        )

    def curves(self) -> Iterator[dict[str, Any]]:
        """Yield one row for each run and epoch that was measured."""
        for unit, run, first in self._parts:
            for s in range(len(run.reward)):
                for k, mark in enumerate(run.marks):
                    yield {
                        **_labels(unit, first + s),
                        "epoch": int(mark),
                        "collected": f"{run.reward[s, k]:.6g}",
                        "expected": f"{run.expected[s, k]:.6g}",
                    }

    def records(self, counts: Counts | None = None) -> Iterator[dict[str, Any]]:
        """Yield one row for each run; `counts` gives columns, one number a run, of these runs, a
        case and a player."""
        for unit, run, first in self._parts:
            more = counts(self, unit["case"], name_of(unit)) if counts else {}
            for s in range(len(run.reward)):
                yield {
                    **_labels(unit, first + s),
                    "seed": unit["seed"],
                    "epochs": int(run.marks[-1]),
                    "published": int(run.published[s]),
                    "collected": repr(float(run.reward[s, -1])),
                    "second_half": repr(float(run.second_half(expected=False)[s])),
                    "second_half_expected": repr(float(run.second_half()[s])),
                    **{label: column[first + s].item() for label, column in more.items()},
                }


Counts = Callable[[Found, str, str], Mapping[str, NDArray[Any]]]


def unit(
    part: str,
    case: str,
    player: dict[str, Any],
    arguments: dict[str, Any],
    epochs: int,
    seeds: int,
    seed: int = 0,
    arrivals: tuple[str, dict[str, Any]] = ("poisson", {}),
    marks: Sequence[int] | None = None,
    itemised: bool = False,
) -> Job:
    """Return a player's runs as a unit of work.

    Arguments:
        marks: epochs at which they are measured.
        itemised: whether items are followed one by one, so that sums over them can be shown.
    """
    return {
        "part": part,
        "case": case,
        "player": player,
        "arguments": arguments,
        "arrivals": list(arrivals),
        "epochs": epochs,
        "seeds": seeds,
        "seed": seed,
        "marks": list(marks_of(epochs) if marks is None else marks),
        "itemised": itemised,
    }


def marks_of(epochs: int) -> list[int]:
    """Return the epochs at which runs are measured, even on a logarithmic scale."""
    number = max(2, int(_PER_DECADE * np.log10(epochs)) + 1)
    spread = np.geomspace(1, epochs, number).round().astype(int).tolist()
    return sorted({*spread, max(1, epochs // 2), epochs})


def work(unit: Job) -> Result:
    """Run a unit; see `Run` for what it returns, as lists."""
    seen = bool(unit["arguments"].get("observed", False))
    arguments = {
        "observed": False,
        **evaluation.arguments_of(unit),
        "arrivals": arrivals_of(*unit["arrivals"]),
        "features": features(seen, unit["itemised"]),
    }

    def chosen(env: CrawlVectorEnv) -> Any:
        return seat(env, unit["player"], unit["seed"])

    rollout = Rollout(chosen, arguments, unit["seeds"], unit["seed"])
    world, harvest = rollout.env.world, rollout.env
    mean = Expected(world)
    marks, late = set(unit["marks"]), unit["epochs"] - max(1, unit["epochs"] // 4)
    collected, brought = np.zeros(unit["seeds"]), np.zeros(unit["seeds"])
    crawls, items = np.zeros(world.value.size), np.zeros(world.shape[0])
    reward, expected = [], []
    for epoch in range(1, unit["epochs"] + 1):
        rate = world.rate
        collected = collected + rollout.step()
        picked, _, counted, _ = harvest.harvest
        assert counted is not None  # as the features ask for them
        brought = brought + mean.crawl(picked, rate)
        items += np.bincount(picked // world.shape[1], counted, world.shape[0])
        if epoch > late:
            crawls[picked] += 1
        if epoch in marks:
            reward.append(collected)
            expected.append(np.full_like(brought, np.nan) if seen else brought)
    assert world.items is not None
    result = {
        "reward": np.array(reward).T,
        "expected": np.array(expected).T,
        "published": items + world.items.sum(axis=-1),
        "crawls": crawls.reshape(world.shape),
    }
    return {name: array.tolist() for name, array in result.items()}


def arrivals_of(name: str, arguments: dict[str, Any]) -> ArrivalProcess:
    """Return arrivals from JSON: a model of the rate, in the words of the records, and its
    arguments. Items are drawn one by one, so that all players can be shown what they ask for."""
    model = {"poisson": "constant", "bursts": "hawkes"}.get(name, name)
    return Arrivals(rate=RATES[model](**arguments), sampler="items")


def as_run(unit: Job, result: Result) -> Run:
    arrays = {name: np.array(values, dtype=np.float64) for name, values in result.items()}
    return Run(np.array(unit["marks"], dtype=np.float64), **arrays)


def _joined(runs: Run, more: Run) -> Run:
    """Return the runs of two units, which are seeds of one player, as one."""
    arrays = (np.concatenate(pair) for pair in zip(runs[1:], more[1:], strict=True))
    return Run(runs.marks, *arrays)


def _check_paired(case: str, runs: dict[str, Run]) -> None:
    first, *others = runs
    for name in others:
        if not np.array_equal(runs[name].published, runs[first].published):
            raise ValueError(
                f"{case}: {name} and {first} did not meet the same content, so that comparing "
                "them means little; give both the same features, fleets and seed"
            )


def _labels(unit: Job, run: int) -> dict[str, Any]:
    return {"part": unit["part"], "case": unit["case"], "player": name_of(unit), "run": run}
