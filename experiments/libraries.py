"""`python -m experiments libraries`: the matrix of libraries and what was run with each.

A recipe is a script that uses the environment with one library, as that library's users would.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crawl_env import Sources
from crawl_env.errors import unknown
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.evaluation import markdown
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import ROOT, provenance
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Rows
from experiments.core.data import Data

SCRIPTS = ROOT / "docs" / "recipes"
NOT_RECIPES = ("scoring.py",)


@dataclass(frozen=True)
class Recipe:
    """A script `docs/recipes/training/LIBRARY_….py` or `docs/recipes/tools/LIBRARY_….py`.

    It is run as `python SCRIPT --seed S [--steps K]`, and the last line that it prints is its
    result, an object of JSON. The first line of its docstring reads "Library: what is run."
    """

    script: Path

    @property
    def name(self) -> str:
        return self.script.stem

    @property
    def key(self) -> str:
        """The library in names of files and on the command line."""
        return self.name.split("_")[0]

    @property
    def trains(self) -> bool:
        """Whether it trains an agent, which is scored."""
        return self.script.parent.name == "training"

    @property
    def requirements(self) -> Path | None:
        """The packages of its virtual environment; None: it runs in the project's own."""
        path = SCRIPTS / "requirements" / f"{self.key}.txt"
        return path if path.exists() else None

    @property
    def title(self) -> tuple[str, str]:
        """The library, and what is run."""
        lines = (ast.get_docstring(ast.parse(self.script.read_text(encoding="utf-8"))) or "").split(
            "\n\n"
        )
        library, colon, what = " ".join(lines[0].split()).partition(": ")
        if not colon:
            raise ValueError(f'{self.script.name}: the docstring must begin with "Library: what"')
        return library, what.rstrip(".")

    def version(self) -> str:
        """Return a hash of the script and of what it is run with."""
        digest = hashlib.sha256()
        for file in (self.script, SCRIPTS / "training" / "scoring.py", self.requirements):
            digest.update(file.read_bytes() if file else b"")
        return digest.hexdigest()

    def run(self, python: Path, seed: int, steps: int | None, seconds: float) -> dict[str, Any]:
        """Run the script with a Python; return its result, or {"problem": …}.

        Arguments:
            steps: None for the recipe's own number.
            seconds: after which it is stopped.
        """
        words = [str(python), str(self.script), "--seed", str(seed)]
        words += [] if steps is None else ["--steps", str(steps)]
        try:
            process = subprocess.run(
                words,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
                env=_environment(python),
            )
        except subprocess.TimeoutExpired:
            return {"problem": f"stopped after {seconds:g} s"}
        if process.returncode != 0:
            return {"problem": _error(process.stderr) or f"exit status {process.returncode}"}
        try:
            result = json.loads(last_line(process.stdout))
        except json.JSONDecodeError:
            result = None
        return result if isinstance(result, dict) else {"problem": "printed no result"}


def recipes(only: tuple[str, ...] = ()) -> list[Recipe]:
    """Return the recipes, of these libraries only if any are named."""
    scripts = sorted(
        SCRIPTS.glob("*/*.py"), key=lambda path: (path.parent.name != "training", path)
    )
    everything = [Recipe(path) for path in scripts if path.name not in NOT_RECIPES]
    return [recipe for recipe in everything if not only or recipe.key in only]


class InstallationFailed(Exception):
    """An environment could not be made; the message says why."""


def python_of(recipe: Recipe, folder: Path) -> Path:
    """Return the Python that a recipe is run with. Its virtual environment is made in `folder`
    unless it is there already, with the same requirements.

    Raises:
        InstallationFailed: pip could not install the requirements.
    """
    if recipe.requirements is None:
        return Path(sys.executable)
    place = folder.resolve() / recipe.key
    python = place / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    record, requirements = place / "installed.txt", recipe.requirements.read_text(encoding="utf-8")
    if not record.exists() or record.read_text(encoding="utf-8") != requirements:
        print(f"{recipe.key}: making {place}, which takes some minutes", file=sys.stderr)
        venv.create(place, clear=True, with_pip=True)
        _pip(python, "--requirement", str(recipe.requirements))
        # Afterwards, since d3rlpy asks for a Gymnasium from before `AutoresetMode`.
        _pip(python, "--editable", str(ROOT))
        record.write_text(requirements, encoding="utf-8")
    return python


def _pip(python: Path, *words: str) -> None:
    process = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise InstallationFailed(f"pip install failed: {last_line(process.stderr)}")


def last_line(text: str) -> str:
    """Return the last line of a text that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _error(text: str) -> str:
    """Return the exception of the last traceback in a text, else its last line."""
    _, _, after = text.rpartition("Traceback (most recent call last):\n")
    lines = (line for line in after.splitlines() if line.strip())
    return next((line for line in lines if not line[0].isspace()), last_line(text))


def _environment(python: Path) -> dict[str, str]:
    """Return environment variables: one thread, and no packages but those of the interpreter."""
    own = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if python == Path(sys.executable):
        return {**os.environ, **own}
    return {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **own}


RECORDS, MATRIX = "records.csv", "matrix.md"
GOAL = 0.99  # of the score, in every run
DISCOUNTS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95)
LARGEST_AGE = 12  # of the sources in value iteration; larger ones count as this one
MEASURED = (
    *("package", "version", "gymnasium", "id", "steps", "reward", "whittle", "random"),
    "same_sources",  # always the sources of which most is published: what is learnt first
    *("ratio", "score", "seconds", "cpu_seconds", "result"),
)
COLUMNS = ("library", "package", "what was run", "environment", "result", "seconds", "verdict")
WORKS, REACHES, FALLS_SHORT, FAILS = "works", "reaches .99", "falls short of .99", "fails"


@dataclass(kw_only=True)
class Libraries(RecordedStudy, ParallelStudy):
    """Which libraries of reinforcement learning work with the environment as it is, and what they
    learn on Table 1: each recipe in docs/recipes is run, in a virtual environment of its own if the
    project does not depend on the library."""

    title: ClassVar[str] = "Libraries of reinforcement learning"
    outputs: ClassVar[tuple[str, ...]] = (MATRIX, *ParallelStudy.outputs)

    only: tuple[str, ...] = ()
    """Libraries to run, such as sb3 or rllib; the records of the others are kept. Default: all."""
    seeds: int = 5
    """Runs of each recipe that trains an agent, with seeds 0, 1, …"""
    steps: int | None = None
    """Steps of the environment that recipes train for; by default each recipe's own number."""
    limit: float = 1800
    """Seconds after which a recipe is stopped."""
    environments: Path = Path("build/libraries")
    """Folder of the virtual environments."""
    jobs: int = 1
    """Recipes run at the same time; -1 for one on each core. Times are meant for 1."""

    def measure(self) -> dict[str, Rows]:
        names = list(dict.fromkeys(recipe.key for recipe in recipes()))
        for name in self.only:
            if name not in names:
                raise unknown("library", name, names)
        if self.seeds < 1:
            raise ValueError(f"--seeds is {self.seeds}; it must be at least 1")
        selection = recipes(self.only)
        pythons = {recipe.name: self._python(recipe) for recipe in selection}
        todo = [
            {
                "recipe": recipe.name,
                "python": pythons[recipe.name],
                "seed": seed,
                "steps": self.steps if recipe.trains else None,
                "limit": self.limit,
            }
            for recipe in selection
            for seed in range(self.seeds if recipe.trains else 1)
        ]
        results = self.runner.run(todo, _work, lambda job: _recipe(job).version())
        fresh = [_record(job, result) for job, result in zip(todo, results, strict=True)]
        order = [recipe.name for recipe in recipes()]
        others = set(order) - {recipe.name for recipe in selection}
        old = self.recorded()[RECORDS] if (self.folder / RECORDS).exists() else ()
        rows = [*(row for row in old if row["recipe"] in others), *fresh]
        return {RECORDS: sorted(rows, key=lambda row: order.index(row["recipe"]))}

    def _python(self, recipe: Recipe) -> dict[str, str]:
        try:
            return {"path": str(python_of(recipe, self.environments))}
        except InstallationFailed as error:
            return {"problem": str(error)}

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        data = Data(tables[RECORDS])
        groups = [data.where(recipe=name) for name in data.values("recipe")]
        trainings = [runs for runs in groups if _trains(runs)]
        others = [runs for runs in groups if not _trains(runs)]
        successes = sum(verdict(runs) == REACHES for runs in trainings)
        works = sum(verdict(runs) == WORKS for runs in others)
        report.answer(
            f"{successes} of {len(trainings)} recipes that train an agent reach a score of .99 in "
            f"every run, and {works} of {len(others)} others work, all with the environment as it "
            "is: registered ids, and wrappers of Gymnasium and of the libraries."
        )
        rows = [row for runs in trainings for row in runs if row["score"] not in ("", None)]
        report.table("Libraries", COLUMNS, [_row(runs) for runs in groups])
        if rows:
            cells = [
                [runs[0]["recipe"], *(", ".join(f"{x:.{digits}f}" for x in _numbers(runs, name))
                                      for name, digits in (("score", 3), ("ratio", 4)))]
                for runs in trainings
            ]  # fmt: skip
            report.table("Score of each run", ("recipe", "scores", "ratios"), cells)
            _discounts(report, rows[0])
        report.paragraph(
            "Table 1 of the paper, M = 2, deterministic arrivals. The score is (agent − random) / "
            "(Whittle − random); the ratio is agent / Whittle. Rewards are means of 10 episodes of "
            "500 steps, without exploration. A score may exceed 1 by some thousandths: the Whittle "
            "policy is optimal in the long run, and an episode is not long. Seconds are processor "
            "time of the training, or time by the clock on a busy machine."
        )

    def texts(self, tables: Mapping[str, Rows]) -> dict[str, str]:
        return {MATRIX: matrix(tables[RECORDS])}


def matrix(rows: Rows) -> str:
    """Return the table of all recipes in Markdown."""
    data = Data(rows)
    lines = [_row(data.where(recipe=name)) for name in data.values("recipe")]
    escaped = [[str(cell).replace("|", "\\|") for cell in line] for line in lines]
    return markdown([COLUMNS, ["---"] * len(COLUMNS), *escaped])


def _row(runs: Rows) -> list[str]:
    first = next((run for run in runs if not run["problem"]), runs[0])
    package = f"{first['package']} {first['version']}".strip()
    ends = (_result(runs), _seconds(runs), verdict(runs))
    return [first["library"], package, first["what"], first["id"], *ends]


def verdict(runs: Rows) -> str:
    """Return what the runs of one recipe show; the worst of them decides."""
    if any(run["problem"] for run in runs):
        return FAILS
    if not _trains(runs):
        return WORKS
    return REACHES if min(_numbers(runs, "score")) >= GOAL else FALLS_SHORT


def _result(runs: Rows) -> str:
    problems = [f"seed {run['seed']}: {run['problem']}" for run in runs if run["problem"]]
    if problems:
        return "; ".join(problems)
    if not _trains(runs):
        return str(runs[0]["result"])
    scores = sorted(_numbers(runs, "score"))
    return (
        f"score {scores[0]:.3f} to {scores[-1]:.3f} in {len(runs)} runs of "
        f"{int(runs[0]['steps']):,} steps, ratio at least {min(_numbers(runs, 'ratio')):.4f}"
    )


def _seconds(runs: Rows) -> str:
    """Return the mean time of training: of the processor, or of the clock if only that is known."""
    for name, note in (("cpu_seconds", ""), ("seconds", " by the clock")):
        if seconds := _numbers(runs, name):
            return f"{np.mean(seconds):.0f}{note}"
    return ""


def _discounts(report: Report, run: Mapping[str, Any]) -> None:
    """Report what the best policy for each discount factor earns, and what always crawling the same
    sources does."""
    random, whittle = float(run["random"]), float(run["whittle"])
    fleet = Sources.preset("table1")
    rewards = [
        (f"best policy, γ = {factor:g}", reward_per_step(factor, fleet, 2)) for factor in DISCOUNTS
    ]
    rewards.append(("always the two sources that publish most", float(run["same_sources"])))
    report.table(
        "The best policy for a discount factor γ, by value iteration",
        ("policy", "reward per step", "score"),
        [
            (name, f"{reward:.2f}", f"{(reward - random) / (whittle - random):.3f}")
            for name, reward in rewards
        ],
    )


def reward_per_step(discount: float, sources: Sources, budget: int, steps: int = 500) -> float:
    """Return the reward per step of the policy that maximises Σ γ^t r_t, from fresh sources.

    Arguments:
        sources: a fleet of equal costs under deterministic arrivals.
        budget: sources crawled in every step.

    >>> table1 = Sources.preset("table1")
    >>> round(reward_per_step(0.0, table1, 2), 2)  # the myopic policy
    327.45
    """
    number = len(sources.cost)
    ages = np.arange(1, LARGEST_AGE + 1, dtype=float)
    content = sources.content_at(np.tile(ages[:, None], number))  # (ages, N)
    state = np.indices((LARGEST_AGE,) * number)  # age − 1 of each source
    subsets = list(combinations(range(number), budget))
    older = np.minimum(state + 1, LARGEST_AGE - 1)
    following = [
        tuple(np.zeros_like(older[i]) if i in subset else older[i] for i in range(number))
        for subset in subsets
    ]
    rewards = np.array([sum(content[state[i], i] for i in subset) for subset in subsets])
    value: FloatArray = np.zeros(state.shape[1:])
    for _ in range(int(10 / (1 - discount)) + 1):
        worth = rewards + discount * np.array([value[then] for then in following])
        value = worth.max(axis=0)
    best = worth.argmax(axis=0)
    now, total = (0,) * number, 0.0
    for _ in range(steps):
        action = best[now]
        total += float(rewards[action][now])
        now = tuple(int(axis[now]) for axis in following[action])
    return total / steps


def _trains(runs: Rows) -> bool:
    return str(runs[0]["trains"]) == "True"


def _numbers(runs: Rows, name: str) -> list[float]:
    return [float(run[name]) for run in runs if run[name] not in ("", None)]


def _recipe(job: Job) -> Recipe:
    return Recipe(next(SCRIPTS.glob(f"*/{job['recipe']}.py")))


def _work(job: Job) -> Result:
    if "problem" in job["python"]:
        return {"problem": job["python"]["problem"]}
    python = Path(job["python"]["path"])
    return _recipe(job).run(python, job["seed"], job["steps"], job["limit"])


def _record(job: Job, result: Result) -> dict[str, Any]:
    recipe = _recipe(job)
    library, what = recipe.title
    own = {"recipe": recipe.name, "library": library, "what": what, "trains": recipe.trains}
    measures = {name: result.get(name, "") for name in MEASURED}
    end = {"seed": job["seed"], "problem": result.get("problem", "")}
    origin = {name: text for name, text in provenance().items() if name != "gymnasium"}
    return {**own, **measures, **end, **origin}
