"""Virtual environments for libraries that the project does not depend on."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from ephemeral_crawl.core.results import ROOT
from experiments.libraries.recipe import Recipe, last_line


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
