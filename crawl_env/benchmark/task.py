"""`BenchmarkTask`: an environment and the protocol by which agents are compared in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from math import nan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import numpy as np

from crawl_env.benchmark.recordings import Recording
from crawl_env.content.trace import Trace
from crawl_env.content.world import SUMS
from crawl_env.errors import check_choice, check_whole
from crawl_env.fleet.parameters import PARAMETERS

NAMESPACE = "EphemeralCrawl"
REFERENCES = Path(__file__).with_name("references.json")

Tier = Literal["checks", "learning", "open", "general", "recorded"]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
BUDGETS = (10_000, 100_000, 1_000_000)  # of training, in source-steps
TRIALS = 20  # of tuning, at most

KNOWN = "known"
_CRAWLS = ("age", "crawled", "harvest", "cost")
_SUMS = tuple(f"harvest_{name}" for name in SUMS)
# The features that an agent may observe, by the name of the information set.
INFORMATION: dict[str, tuple[str, ...]] = {
    KNOWN: (*PARAMETERS, "value", "available", "balance", "failed", *_CRAWLS[:3]),
    "rates unknown": (*_CRAWLS, "items", "mean_utility", "decay_rate"),
    "items": (*_CRAWLS, "items", *_SUMS),
    "harvest": _CRAWLS,
    "known, deadline": (*PARAMETERS, "value", "steps_left", *_CRAWLS[:3]),
    "known, looks": (*PARAMETERS, "value", "seen", "shown", *_CRAWLS[:3]),
    "known, topics": (*PARAMETERS, "value", "topic", *_CRAWLS[:3]),
    "known, stories": (*PARAMETERS, "value", "topic", "items", "known", *_CRAWLS[:3]),
    "topics": (*_CRAWLS, "items", *_SUMS, "topic"),
    "mixed": ("content", *_CRAWLS),
    "signals": (*_CRAWLS, "items", *_SUMS, "pings"),
    "engine": (*_CRAWLS, "items", *_SUMS, "backlog"),
}
_FLEET = "{fleet}"  # in the name of a fleet: the number of the run's fleet


class Reference(NamedTuple):
    """The recorded rewards of a reference policy, or recorded bounds, on the test runs."""

    policy: str
    rewards: tuple[float, ...]  # by run: utility / step, or the discounted return

    @property
    def mean(self) -> float:
        return fmean(self.rewards)

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; NaN for one run."""
        return stdev(self.rewards) / len(self.rewards) ** 0.5 if self.rewards[1:] else nan

    @property
    def runs(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True, kw_only=True)
class BenchmarkTask:
    """An environment, and the protocol by which agents are compared in it.

    Run s of an agent is an episode in an environment of its own: `warmup` steps, which do not
    count, and `steps` steps, whose mean reward per step is the result. Runs are paired: run s of
    every agent has the same seed, so the same fleet and the same arrivals.

    Attributes:
        name: the id is `EphemeralCrawl/<name>-v<version>`.
        tier: "checks" (the optimum is known, nothing is ranked), "learning" (parameters are
            unknown), "open" (no known policy is optimal), "general" (one policy for fleets that it
            has not met) or "recorded".
        group, label: what the task is, for reports.
        arguments: of the environment. In the name of a fleet, `{fleet}` is the number of the
            fleet of a run.
        information: a key of `INFORMATION`, the features that an agent may observe.
        steps, warmup: measured steps, and steps before.
        discount: below 1, the discounted return of the measured steps is the result.
        seeds: number of runs.
        trains_on: names of the tasks in which an agent may train; by default in this one, with
            other seeds.
        budgets: source-steps (steps × environments × sources) of training that a score may state.
        trials: settings that may be tried, on the splits "train" and "validation" only.
        best: the reference that scores 1.
        recording: the log that a task of the tier "recorded" replays. Each run begins at a step of
            its own, and the log is repeated at its end; an agent may train in the first part.
        stronger: policies of more knowledge or more computation whose rewards are recorded, too.
        version: changes with the meaning of the task; scores of different versions differ.
        history: what each version changed, the first one first.
        errata: what was found wrong in a version that is kept, or in what was said of it.
    """

    name: str
    tier: Tier
    group: str
    label: str
    arguments: Mapping[str, Any]
    information: str = KNOWN
    steps: int
    warmup: int = 0
    discount: float = 1.0
    seeds: int = 20
    trains_on: tuple[str, ...] = ()
    recording: Recording | None = None
    budgets: tuple[int, ...] = BUDGETS
    trials: int = TRIALS
    best: str = "whittle"
    stronger: tuple[str, ...] = ()
    version: int = 0
    history: tuple[str, ...] = field(default=("First version.",))
    errata: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id for `gym.make`."""
        return f"{NAMESPACE}/{self.name}-v{self.version}"

    @property
    def features(self) -> tuple[str, ...]:
        """The features that an agent may observe."""
        return INFORMATION[self.information]

    @property
    def is_known(self) -> bool:
        """Whether an agent may observe the true parameters."""
        return self.information.startswith(KNOWN)

    @property
    def is_deterministic(self) -> bool:
        """Whether the arrivals are deterministic, so that only the agent may be random."""
        return bool(self.arguments["arrivals"] == "deterministic")

    @property
    def environment(self) -> dict[str, Any]:
        """The arguments of the environment of the id: the first training run, one episode.

        Raises:
            ValueError: the recording of the task is not there, or it is another one.
        """
        return {**self.arguments_of("train", 0), "horizon": self.warmup + self.steps}

    def arguments_of(self, split: Split, run: int, salt: str = "") -> dict[str, Any]:
        """Return the arguments of the environment of a run, which shows all that may be observed,
        or where the parameters are known, the value.

        What `arrivals` and `signals` state by source, such as phases, is in another order in each
        run, so that it remains unknown.
        """
        features = ("value",) if self.is_known else self.features
        arguments = {"features": list(features), **self.arguments}
        seed = self.seed(split, run, salt)
        if self.has_own_fleet:
            arguments["sources"] = arguments["sources"].replace(_FLEET, str(seed))
        for name in {"arrivals", "signals"} & set(arguments):
            arguments[name] = _permuted(arguments[name], seed)
        if self.recording is not None:
            past, rest = self.recording.parts()
            trace = Trace(rest if split == "test" else past)
            arguments |= {"sources": self.recording.fleet(fitted=False), "arrivals": trace}
        return arguments

    def informed_arguments(self, split: Split, run: int, salt: str = "") -> dict[str, Any]:
        """Return the arguments of the environment of a run that shows the true parameters, as
        references need them; of a recording, those that are fitted to its first part."""
        arguments = self.arguments_of(split, run, salt)
        if self.recording is not None:
            arguments["sources"] = self.recording.fleet(fitted=True)
        if not self.is_known:
            features = (*arguments["features"], "value", *PARAMETERS)
            arguments["features"] = tuple(dict.fromkeys(features))
        return arguments

    @property
    def has_own_fleet(self) -> bool:
        """Whether every run has one fleet, in which an agent may train."""
        sources = self.arguments["sources"]
        return isinstance(sources, str) and _FLEET in sources

    def seed(self, split: Split, run: int, salt: str = "") -> int:
        """Return the seed of a run.

        It is a hash of the id, the split, the run and the salt, whose remainder modulo 4 is the
        split: seeds of different splits differ, whichever runs and salts are taken.

        Arguments:
            salt: a secret of who organises a competition, so that nobody knows its test seeds.

        >>> from crawl_env.benchmark import named
        >>> task = named("Drift100")
        >>> task.seed("test", 0) == task.seed("test", 0), task.seed("test", 1) % 4
        (True, 2)
        """
        check_choice("split", split, SPLITS)
        check_whole("run", run, 0)
        text = "\0".join((self.id, split, str(run), salt))
        digest = hashlib.sha256(text.encode()).digest()
        return int.from_bytes(digest[:7]) * 4 + SPLITS.index(split)

    def describe(self) -> dict[str, Any]:
        """Return everything on which the meaning of a score depends, as JSON."""
        description = asdict(self) | {"id": self.id, "features": list(self.features)}
        for words in ("group", "label", "history", "errata", "tier", "stronger"):  # may be improved
            del description[words]
        if self.recording is None:
            del description["recording"]
        elif not self.recording.digest:  # every machine has another log
            description["recording"]["digest"] = self.recording.log().digest()
        return description

    @property
    def hash(self) -> str:
        """The SHA-256 of the description, which results state."""
        text = json.dumps(self.describe(), sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def references(self) -> dict[str, Reference]:
        """The recorded references of the test runs, best information last; {} if there are none.

        "random"; "best without learning", the best policy that neither knows the parameters (unless
        the task shows them) nor learns; "whittle", which knows the true parameters; `best` and
        `stronger`; and, where one is known, "bound", which no policy exceeds in the long run (see
        `agents.theory.task_bound` and, for rates that drift or jump and discounted returns,
        `agents.theory.episode`).
        `python -m experiments references` computes them again.
        """
        rows = _recorded().get(self.id, {}).get("references", {})
        return {name: Reference(row["policy"], tuple(row["rewards"])) for name, row in rows.items()}

    @property
    def ref_min_score(self) -> float | None:
        """The reward that scores 0, that of the random policy, under Minari's name."""
        reference = self.references.get("random")
        return None if reference is None else reference.mean

    @property
    def ref_max_score(self) -> float | None:
        """The reward that scores 1, under Minari's name."""
        reference = self.references.get(self.best)
        return None if reference is None else reference.mean

    def score(self, reward: float) -> float:
        """Return the score of a mean reward on the test runs: 0 is random, 1 `best`.

        Raises:
            ValueError: the references of the task are not recorded.
        """
        low, high = self.ref_min_score, self.ref_max_score
        if low is None or high is None:
            raise ValueError(
                f"{self.id} has no recorded references; run python -m experiments references"
            )
        return (reward - low) / (high - low)


def _permuted(value: Any, seed: int) -> Any:
    """Return a value in which lists are permuted, those of one length alike."""
    if isinstance(value, Mapping):
        return {name: _permuted(one, seed) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    permutation: list[Any] = np.random.default_rng(seed).permutation(value).tolist()
    return permutation


@cache
def _recorded() -> dict[str, Any]:
    if not REFERENCES.exists():
        return {}
    references: dict[str, Any] = json.loads(REFERENCES.read_text(encoding="utf-8"))
    return references
