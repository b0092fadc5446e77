"""`python -m experiments libraries`: the matrix of libraries and what was run with each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from crawl_env.errors import unknown
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance, read_csv
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy
from experiments.libraries import matrix
from experiments.libraries.environments import InstallationFailed, python_of
from experiments.libraries.recipe import SCRIPTS, Recipe, recipes

RECORDS, MATRIX = "records.csv", "matrix.md"


@dataclass(kw_only=True)
class Libraries(ParallelStudy):
    """Which libraries of reinforcement learning work with the environment as it is, and what they
    learn on Table 1: each recipe in experiments/libraries/recipes is run, in a virtual environment
    of its own if the project does not depend on the library."""

    outputs: ClassVar[tuple[str, ...]] = (MATRIX, *ParallelStudy.outputs)

    only: tuple[str, ...] = ()
    """Libraries to run, such as sb3 or rllib; the records of the others are kept. Default: all."""
    only_report: bool = False
    """Write the report from the existing records."""
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

    def run(self) -> None:
        self._check()
        records = self._kept() + ([] if self.only_report else self._run())
        records.sort(key=lambda record: self._order.index(record["recipe"]))
        report = Report("Libraries of reinforcement learning")
        table = matrix.write(report, records)
        self.publish(report, {MATRIX: table, RECORDS: records}, forget=not self.only_report)

    def _check(self) -> None:
        self.check()
        known = list(dict.fromkeys(recipe.key for recipe in recipes()))
        for name in self.only:
            if name not in known:
                raise unknown("library", name, known)
        if self.seeds < 1:
            raise ValueError(f"--seeds is {self.seeds}; it must be at least 1")
        if self.only_report and not (self.folder / RECORDS).exists():
            raise ValueError("there are no records yet; leave out --only-report")

    @property
    def _order(self) -> list[str]:
        return [recipe.name for recipe in recipes()]

    def _kept(self) -> list[dict[str, Any]]:
        """Return the records of the recipes that are not run now."""
        file = self.folder / RECORDS
        if not (self.only or self.only_report) or not file.exists():
            return []
        run = [] if self.only_report else [recipe.name for recipe in recipes(self.only)]
        names = set(self._order) - set(run)
        return [dict(record) for record in read_csv(file) if record["recipe"] in names]

    def _run(self) -> list[dict[str, Any]]:
        chosen = recipes(self.only)
        pythons = {recipe.name: self._python(recipe) for recipe in chosen}
        todo = [
            {
                "recipe": recipe.name,
                "python": pythons[recipe.name],
                "seed": seed,
                "steps": self.steps if recipe.trains else None,
                "limit": self.limit,
            }
            for recipe in chosen
            for seed in range(self.seeds if recipe.trains else 1)
        ]
        done = self.runner.run(todo, _work, _version)
        return [_record(job, result) for job, result in zip(todo, done, strict=True)]

    def _python(self, recipe: Recipe) -> dict[str, str]:
        try:
            return {"path": str(python_of(recipe, self.environments))}
        except InstallationFailed as error:
            return {"problem": str(error)}


def _recipe(job: Job) -> Recipe:
    return Recipe(next(SCRIPTS.glob(f"*/{job['recipe']}.py")))


def _version(job: Job) -> str:
    return _recipe(job).version()


def _work(job: Job) -> Result:
    if "problem" in job["python"]:
        return {"problem": job["python"]["problem"]}
    python = Path(job["python"]["path"])
    return _recipe(job).run(python, job["seed"], job["steps"], job["limit"])


def _record(job: Job, result: Result) -> dict[str, Any]:
    recipe = _recipe(job)
    library, what = recipe.title
    found = {name: result.get(name, "") for name in matrix.MEASURED}
    return {
        "recipe": recipe.name,
        "library": library,
        "what": what,
        "trains": recipe.trains,
        **found,
        "seed": job["seed"],
        "problem": result.get("problem", ""),
        **{name: text for name, text in provenance().items() if name != "gymnasium"},
    }
