"""The project as a whole: README, packaging, direction of imports, committed records."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


PYTHON = [
    pytest.param(block, id=f"{name}-{i}")
    for name in ("README.md", "docs/adaptive-agents.md", "docs/learning-agents.md")
    for i, block in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)
    )
]


@pytest.mark.parametrize("block", PYTHON)
def test_python_in_the_docs_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs", "exec"), {})


def test_the_docs_refer_to_files_that_there_are():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:\s]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


COMMANDS = [
    line.strip() for line in README.splitlines() if line.startswith("    .venv/bin/python -m")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_in_the_readme_run(command, tmp_path):
    words = [sys.executable, *shlex.split(command)[1:], "--out", str(tmp_path / "out")]
    words += ["--epochs", "50", "--seeds", "3", "--engine", "sequential"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").exists()


def test_the_readme_names_commands_that_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert {"benchmark", "test", "docs", "lint", "setup"} <= set(targets)
    assert {"make benchmark", "make test"} <= set(re.findall(r"make \w+", README))
    help_text = subprocess.run(
        [sys.executable, "-m", "experiments", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in re.findall(r"python -m experiments (\w+)", README):
        assert name in help_text


TABLES = re.findall(r"<!-- results: (\S+) -->\n(.*?)<!-- end of results -->", README, re.S)


@pytest.mark.parametrize(("record", "shown"), TABLES, ids=[record for record, _ in TABLES])
def test_the_readmes_tables_are_the_committed_records(record, shown):
    assert shown.strip() == (ROOT / record).read_text(encoding="utf-8").strip()


def test_the_readme_shows_policies_and_learners():
    assert [Path(record).name for record, _ in TABLES] == ["summary.md", "learners.md"]


def imports_of(package: str) -> set[tuple[str, str]]:
    found = set()
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {(file.name, name.split(".")[0]) for name in names}
    return found


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("crawl_env", {"agents", "experiments"}), ("agents", {"experiments"})],
)
def test_imports_point_one_way(package, forbidden):
    assert not [(file, name) for file, name in imports_of(package) if name in forbidden]


def test_the_core_needs_only_its_declared_dependencies():
    code = (
        "import sys, crawl_env, agents;"
        "bad = {'torch', 'stable_baselines3', 'matplotlib', 'pygame', 'scipy'} & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_wheel_holds_the_two_packages_with_their_types():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["crawl_env", "agents"]
    for package in packages:
        assert (ROOT / package / "py.typed").exists()


def test_the_presets_are_in_the_wheel(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert "crawl_env/fleet/presets/hacker-news.csv" in zipfile.ZipFile(wheel).namelist()


def test_constraints_pin_everything_exactly():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins), pins
    assert "torch==2.13.0" in pins
