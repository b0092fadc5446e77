"""A recipe: a script that uses the environment with one library, as that library's users would."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ephemeral_crawl.core.results import ROOT

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
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
                env=_environment(python),
            )
        except subprocess.TimeoutExpired:
            return {"problem": f"stopped after {seconds:g} s"}
        if done.returncode != 0:
            return {"problem": _error(done.stderr) or f"exit status {done.returncode}"}
        try:
            result = json.loads(last_line(done.stdout))
        except json.JSONDecodeError:
            result = None
        return result if isinstance(result, dict) else {"problem": "printed no result"}


def recipes(only: tuple[str, ...] = ()) -> list[Recipe]:
    """Return the recipes, of these libraries only if any are named."""
    scripts = sorted(
        SCRIPTS.glob("*/*.py"), key=lambda path: (path.parent.name != "training", path)
    )
    found = [Recipe(path) for path in scripts if path.name not in NOT_RECIPES]
    return [recipe for recipe in found if not only or recipe.key in only]


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
    installed, wanted = place / "installed.txt", recipe.requirements.read_text(encoding="utf-8")
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        print(f"{recipe.key}: making {place}, which takes some minutes", file=sys.stderr)
        venv.create(place, clear=True, with_pip=True)
        _pip(python, "--requirement", str(recipe.requirements))
        # Afterwards, since d3rlpy asks for a Gymnasium from before `AutoresetMode`.
        _pip(python, "--editable", str(ROOT))
        installed.write_text(wanted, encoding="utf-8")
    return python


def _pip(python: Path, *words: str) -> None:
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise InstallationFailed(f"pip install failed: {last_line(done.stderr)}")


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
