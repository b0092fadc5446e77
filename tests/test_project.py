"""The project as a whole: README, packaging, direction of imports, committed records."""

import ast
import re
import shlex
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


COMMANDS = [
    line.strip() for line in README.splitlines() if line.startswith("    .venv/bin/ephemeral-crawl")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_in_the_readme_run(command, tmp_path):
    words = [
        sys.executable,
        "-m",
        "ephemeral_crawl",
        *shlex.split(command)[1:],
        "--out",
        str(tmp_path / "out"),
    ]
    words += ["--steps", "50", "--seeds", "3", "--engine", "sequential"]
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


# Packages and single modules from the ground up: each imports only what stands before it. Those
# that share a place do not know each other.
LAYERS = (
    ("crawl_env.numerics", "crawl_env.rng"),
    ("crawl_env.errors", "crawl_env.extras"),
    ("crawl_env.files",),
    ("crawl_env.fleet", "crawl_env.log"),
    ("crawl_env.content",),
    ("crawl_env.simulation",),
    ("crawl_env.rendering",),
    ("crawl_env.envs",),
    ("crawl_env",),  # its public names
    ("agents.theory",),
    ("agents.policies",),
    ("agents.learning",),
    ("agents.adaptive",),
    ("agents.registry",),
    ("agents.evaluation",),
    ("agents",),
)


def imports_of(top: str) -> set[tuple[str, str]]:
    """Return which packages of the project import which, by their first two names."""
    found = set()
    for file in (ROOT / top).rglob("*.py"):
        names = file.relative_to(ROOT).with_suffix("").parts
        importer = top if names[1] == "__init__" else ".".join(names[:2])
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            imported = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported = [
                    f"{node.module}.{alias.name}" * is_module(node.module, alias.name)
                    or node.module
                    for alias in node.names
                ]
            for name in imported:
                if name.split(".")[0] in ("crawl_env", "agents", "ephemeral_crawl", "experiments"):
                    found.add((importer, ".".join(name.split(".")[:2])))
    return {(importer, imported) for importer, imported in found if importer != imported}


def is_module(package: str, name: str) -> bool:
    path = ROOT / package.replace(".", "/") / name
    return path.with_suffix(".py").exists() or path.is_dir()


def test_packages_import_only_those_below_them():
    place = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    found = imports_of("crawl_env") | imports_of("agents")
    assert {name for edge in found for name in edge} == set(place)
    for importer, imported in found:
        assert place[imported] < place[importer], f"{importer} imports {imported}"


def test_commands_and_studies_do_not_import_each_other_in_circles():
    graph: dict[str, set[str]] = {}
    for importer, imported in imports_of("ephemeral_crawl") | imports_of("experiments"):
        graph.setdefault(importer, set()).add(imported)
    TopologicalSorter(graph).prepare()  # raises CycleError where there is a circle
    above = ("ephemeral_crawl", "experiments")
    assert not any(name.startswith(above) for name in graph["ephemeral_crawl.core"])
    for importer, imported in imports_of("ephemeral_crawl"):
        assert not imported.startswith("experiments"), f"{importer} imports {imported}"


def test_the_core_needs_only_its_declared_dependencies():
    code = (
        "import sys, crawl_env, agents;"
        "slow = {'email.utils', 'importlib.metadata', 'torch', 'stable_baselines3'};"
        "bad = ({'matplotlib', 'pygame', 'scipy'} | slow) & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_constraints_pin_everything_exactly():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins), pins
    assert "torch==2.13.0" in pins


def test_the_identifiers_of_the_glossary_exist():
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("## Terms")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")][2:]
    names = {name for row in rows for name in re.findall(r"`([A-Za-z_.]+)`", row[2])}
    source = "".join(
        file.read_text(encoding="utf-8")
        for package in ("crawl_env", "agents")
        for file in (ROOT / package).rglob("*.py")
    )
    assert len(names) > 20
    assert not [name for name in names if not re.search(rf"\b{name.split('.')[-1]}\b", source)]
