"""`ephemeral-crawl benchmark`: scores an agent on tasks of the benchmark."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

import agents
import crawl_env
import ephemeral_crawl
from agents.evaluation import benchmark as results
from agents.evaluation.aggregate import iqm
from agents.evaluation.rollout import AgentLike
from agents.evaluation.statistics import number
from agents.registry import find
from crawl_env.benchmark import named
from crawl_env.benchmark.task import Split
from crawl_env.errors import counted, shown, unknown
from ephemeral_crawl.core.evaluation import plain
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy

FILE = "result.json"
_LONGEST = 120  # characters of the name of a folder


@dataclass(kw_only=True)
class Benchmark(ParallelStudy):
    """Scores an agent on tasks of the benchmark, and writes the file with which it is submitted.

    The same command resumes an interrupted run. Nothing is sent anywhere: see the documentation of
    the benchmark for how results are submitted.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("agent", "tasks", "training", "trials", "settings", "features", "called", "out", "jobs"),
    )
    outputs: ClassVar[tuple[str, ...]] = (FILE, "report.html")

    agent: str = ""
    """MODULE:CLASS of the agent, imported from the current folder; or the name of a known one or,
    with --training, of a learner."""
    tasks: str = "core"
    """core, trained, tiers (checks, learning, open, general, recorded), names or ids, separated by
    commas."""
    training: int = 0
    """Source-steps of training before each run, such as 100000; of a learner or adaptive agent."""
    trials: int = 0
    """Number of settings that were tried; stated in the result."""
    settings: Annotated[str, tyro.conf.arg(metavar="JSON")] = "{}"
    """Hyper-parameters of the agent, passed to it by name and stated in the result."""
    features: tuple[str, ...] = ()
    """What the agent observes, if its class does not say so."""
    called: str = ""
    """Name of the agent in tables; by default, its own name."""
    split: Split = "test"
    """Seeds of the runs: those of validation and train are for tuning, and not submitted."""
    salt: str = ""
    """An organiser's secret, from which other test seeds follow."""

    @property
    def folder(self) -> Path:
        """The folder of the results: by default one for each agent, choice of tasks, training,
        split, settings, features and salt, so that one result does not replace another."""
        parts = ["benchmark", self.agent, self.tasks, self.training, self.split]
        usual = [None, None, "core", 0, "test"]
        name = "-".join(str(part) for part, x in zip(parts, usual, strict=True) if part != x)
        name = re.sub(r"[^\w.]+", "-", name)
        others = [self.settings, list(self.features), self.salt]
        if len(name) > _LONGEST or others != ["{}", [], ""]:
            text = json.dumps([name, *others])
            name = f"{name[: _LONGEST - 9]}-{sha256(text.encode()).hexdigest()[:8]}"
        return self.out or Path("results") / name

    def run(self) -> None:
        if not self.agent:
            raise ValueError("no agent was given; give --agent my_module:MyAgent, or a name")
        words = [word for word in map(str.strip, self.tasks.split(",")) if word]
        with exits_told(self.agent):
            agent = load(self.agent, self._settings)
            tasks, left_out = results.playable(agent, words, self.features, self.training)
        self.check()
        head = results.header(
            agent,
            self.called,
            self.training,
            self._settings,
            self.trials,
            self.split,
            self.salt,
        )
        jobs: list[Job] = [
            {
                "agent": self.agent,
                "settings": self._settings,
                "code": head["code"],
                "spec": task.hash,
                "task": task.id,
                "run": run,
                "training": self.training,
                "features": self.features,
                "split": self.split,
                "salt": self.salt,
            }
            for task in tasks
            for run in range(task.seeds)
        ]
        once_more = ", and one of them again to see whether it repeats" * (self.split == "test")
        runs = f"{counted(len(jobs), 'run')}{once_more}"
        print(f"{head['agent']}: {counted(len(tasks), 'task')}, {runs}")
        if left_out:
            print(f"Not played, as the report explains: {', '.join(left_out)}")
        if not self.training and isinstance(agent, type) and hasattr(agent, "learn"):
            print("Its method `learn` is not called: without --training it plays as it is made")
        repeated: list[Job] = [{**jobs[0], "again": True}] if self.split == "test" else []
        rows = self.runner.run(jobs + repeated, work)
        result = results.completed(head, rows[: len(jobs)], left_out, self.salt)
        report = Report(f"{head['agent']} on the benchmark")
        write(report, result, self.salt)
        if repeated and (warning := results.differing(rows[0], rows[-1])):
            report.paragraph(f"Warning: {warning}.")
        self.publish(report, {FILE: json.dumps(result, indent=1) + "\n"})

    @property
    def _settings(self) -> dict[str, Any]:
        try:
            settings = json.loads(self.settings)
        except ValueError as error:
            raise ValueError(f"--settings is not JSON: {error}") from None
        if not isinstance(settings, dict):
            raise ValueError(
                f"--settings is {self.settings}; give an object, such as "
                '\'{"estimator": "counts"}\''
            )
        return settings


@contextmanager
def exits_told(agent: str) -> Iterator[None]:
    """Raise an error, as for other failures of an agent, where its code ends the program."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(
            f"the code of {agent} called sys.exit({shown(error.code)}), which ends the benchmark; "
            "raise an error there that says what is wrong"
        ) from error


def work(job: Job) -> Result:
    """Return the row of one run."""
    with exits_told(job["agent"]):
        return results.play(
            load(job["agent"], job["settings"]),
            named(job["task"]),
            job["run"],
            job["training"],
            job["features"],
            job["split"],
            job["salt"],
        )


def load(place: str, settings: dict[str, Any] | None = None) -> AgentLike:
    """Return the agent MODULE:CLASS, or the known name, with its settings.

    Raises:
        ImportError, ValueError: there is none, or it has no such settings.
    """
    module, colon, path = place.partition(":")
    if not colon:
        try:
            kind: Any = results.entrant(place)
        except ValueError as error:
            raise ValueError(f"{error}. A class of your own is named MODULE:CLASS") from None
        return _with(find(kind) if kind == place else kind, settings) if settings else kind
    if not (path and all(module.split("."))):
        raise ValueError(f"--agent {place}: give MODULE:CLASS, where MODULE.py is in this folder")
    folder = str(Path.cwd())
    for module_of_ours in (agents, crawl_env, ephemeral_crawl):
        ours = Path(str(module_of_ours.__file__))
        package = ours.parent.name
        for rival in (Path(folder, f"{package}.py"), Path(folder, package, ours.name)):
            if rival.exists() and not rival.samefile(ours):
                raise ValueError(
                    f"{rival} has the name of a package of ephemeral-crawl, which worker processes "
                    "would no longer find; rename it, or run the command in another folder"
                )
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        kind = reduce(getattr, path.split("."), import_module(module))
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        raise ValueError(
            f"--agent {place}: there is no module {module!r} in {folder} or installed; give "
            "MODULE:CLASS, where MODULE.py is in this folder"
        ) from None
    except AttributeError:
        raise ValueError(f"--agent {place}: the module {module} has no {path!r}") from None
    return _with(kind, settings or {}) if settings else kind


def _with(kind: Callable[..., Any], settings: dict[str, Any]) -> AgentLike:
    """Return what makes agents of a class with settings, under its name and features: its own
    arguments, or of a learner the fields of its `Settings`."""
    if not inspect.isclass(kind):
        raise ValueError(f"--settings are given, and {kind!r} is no class that takes them")
    base: Any = kind
    made_of = getattr(base, "Settings", None)  # of a learner
    parameters = inspect.signature(made_of or base).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        names = list(parameters) if made_of else [*parameters][1:]  # without the environment
        names = [name for name in names if name != "seed"]
        if not names:
            raise ValueError(f"--settings are given, and {base.__name__} takes none")
        for name in settings:
            if name not in names:
                raise unknown(f"setting of {base.__name__}", name, names)

    def initialise(self: Any, env: Any, *, seed: int | None = None) -> None:
        arguments = {"settings": made_of(**settings)} if made_of else settings
        base.__init__(self, env, seed=seed, **arguments)

    subclass: Any = type(
        kind.__name__,
        (kind,),
        {
            "__module__": kind.__module__,
            "__init__": initialise,
            "name": results.name_of(kind),
        },
    )
    subclass.__qualname__ = kind.__qualname__
    agent: AgentLike = subclass
    return agent


def write(report: Report, result: results.Result, salt: str = "") -> None:
    """Add the scores of a result to a report."""
    by_task = results.run_scores(result["runs"], result["split"], salt)
    rows = []
    for task_id, score in results.scores_of(result["runs"], result["split"], salt).items():
        task = named(task_id)
        own_runs = [row for row in result["runs"] if row["task"] == task_id]
        rows.append(
            [
                results.score_name(task, result["training"]),
                task.tier,
                plain(score),
                number(float(sum(row["reward"] for row in own_runs) / len(own_runs))),
                f"{by_task[task_id].min():.3f}",
                len(own_runs),
                f"{sum(row['seconds'] + row['training_seconds'] for row in own_runs):.1f}",
            ]
        )
    together = iqm(list(by_task.values()))
    report.answer(
        f"{result['agent']} scores {plain(together)} in the interquartile mean of "
        f"{counted(len(rows), 'task')}: 0 is the random policy, 1 the reference of "
        "each task."
    )
    columns = ["score", "tier", "mean", "reward", "worst run", "runs", "CPU seconds"]
    report.table("Scores by task", columns, rows)
    for reason in result["left_out"].values():
        report.paragraph(f"Not played: {reason}.")
