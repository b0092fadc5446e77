"""The project as a whole: README, packaging, direction of imports, committed records."""

import ast
import re
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from crawl_env.extras import EXTRAS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_readme_is_short_and_names_the_two_commands():
    assert len(README.splitlines()) <= 150
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert {"benchmark", "test", "docs", "lint", "setup"} <= set(targets)
    assert {"make benchmark", "make test"} <= set(re.findall(r"make \w+", README))


def test_the_rows_of_the_readme_are_rows_of_the_benchmark():
    recorded = (ROOT / "results" / "benchmark" / "summary.md").read_text(encoding="utf-8")
    groups = {}
    for group, table in re.findall(r"^\*\*(.*)\*\*\n\n((?:\|.*\n)+)", recorded, re.M):
        columns, *lines = cells_of(table)
        groups |= {(group, row[0]): dict(zip(columns, row, strict=True)) for row in lines}
    names, *rows = cells_of(README.partition("## Results")[2])
    names[1] = {"Whittle, of bound": "fraction of bound"}[names[1]]
    assert len(rows) == 5
    for task, *shown in rows:
        group, _, label = task.partition(": ")
        (found,) = (row for (g, x), row in groups.items() if g.startswith(group) and x == label)
        assert shown == [found[name] for name in names[1:]], task


def cells_of(table):
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in rows if not row[0].startswith("---")]


class Facts(NamedTuple):
    """What the tests ask of a module, so that it is parsed once for all of them."""

    imports: list[ast.Import | ast.ImportFrom]
    classes: list[str]
    searches: bool
    variables: frozenset[str]


@cache
def facts_of(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    names = [node.id for node in nodes if isinstance(node, ast.Name) and is_stored(node)]
    names += [node.arg for node in nodes if isinstance(node, ast.arg)]
    return Facts(imports, classes, searches_in(nodes), frozenset(names))


def is_stored(name):
    return isinstance(name.ctx, ast.Store)


# Packages and single modules from the ground up: each imports only what stands before it. Those
# that share a place do not know each other.
LAYERS = (
    ("crawl_env.compiled", "crawl_env.numerics"),
    ("crawl_env.processes", "crawl_env.threads"),
    ("crawl_env.errors", "crawl_env.extras"),
    ("crawl_env.files", "crawl_env.rng"),
    ("crawl_env.fleet", "crawl_env.log"),
    ("crawl_env.content",),
    ("crawl_env.simulation",),
    ("crawl_env.rendering", "crawl_env.device"),
    ("crawl_env.benchmark",),
    ("crawl_env.envs",),
    ("crawl_env",),  # its public names
    ("agents.theory",),
    ("agents.inference",),
    ("agents.policies",),
    ("agents.learning",),
    ("agents.adaptive",),
    ("agents.registry",),
    ("agents.evaluation",),
    ("agents.scheduling",),
    ("agents",),
)


def imports_of(top):
    """Return which packages of the project import which, by their first two names."""
    found = set()
    for file in (ROOT / top).rglob("*.py"):
        names = file.relative_to(ROOT).with_suffix("").parts
        importer = top if names[1] == "__init__" else ".".join(names[:2])
        for node in facts_of(file).imports:
            imported = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif node.module:
                imported = [
                    f"{node.module}.{alias.name}" * is_module(node.module, alias.name)
                    or node.module
                    for alias in node.names
                ]
            for name in imported:
                if name.split(".")[0] in ("crawl_env", "agents", "ephemeral_crawl", "experiments"):
                    found.add((importer, ".".join(name.split(".")[:2])))
    return {(importer, imported) for importer, imported in found if importer != imported}


def is_module(package, name):
    path = ROOT / package.replace(".", "/") / name
    return path.with_suffix(".py").exists() or path.is_dir()


def test_packages_import_only_those_below_them():
    place = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    found = imports_of("crawl_env") | imports_of("agents")
    assert {name for edge in found for name in edge} == set(place)
    for importer, imported in found:
        assert place[imported] < place[importer], f"{importer} imports {imported}"


def test_the_extras_list_what_the_package_imports():
    """Every third-party import is a core dependency or belongs to an extra."""
    known = {"numpy", "numba", "gymnasium", "crawl_env", "agents", "ephemeral_crawl"}
    known |= {name for names in EXTRAS.values() for name in names}
    for package in ("crawl_env", "agents", "ephemeral_crawl"):
        for file in (ROOT / package).rglob("*.py"):
            for node in facts_of(file).imports:
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif node.level == 0:
                    names = [node.module or ""]
                tops = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
                assert tops <= known, f"{file.relative_to(ROOT)} imports {tops - known}"
    declared = PROJECT["project"]["optional-dependencies"]
    for extra, names in EXTRAS.items():
        required = " ".join(declared[extra]).replace("-", "_").lower()
        assert all(name in required for name in names), extra


# Where an interval may be halved until a condition's place in it is known, and why; else this is
# done in agents.theory.price.
SEARCHES = {
    "agents/theory/closed_form.py": "whole ages at which the Whittle index reaches a level",
    "agents/theory/renewal.py": "whole ages, of an index without a closed form",
    "agents/theory/observed.py": "places in a table",
    "agents/theory/price.py": "the home of searches for prices",
    "crawl_env/content/items.py": "places in a list",
    "crawl_env/log/decay_curves.py": "places in a curve",
    "ephemeral_crawl/live/life.py": "compiled: the time in which a source is expected to be back",
    "ephemeral_crawl/live/price.py": "compiled: when the index of a source that fails is the price",
    "experiments/live/rules.py": "SciPy's, in a study",
}
SOLVERS = {"brentq", "brenth", "bisect", "minimize_scalar", "root_scalar", "toms748"}
# Who moves a bracket itself, since the intervals between crawls are bounded together with λ, which
# saves up to 40 % of the time; others call a search of agents.theory.price.
BRACKETS = {"agents/theory/price.py", "agents/theory/relaxation.py", "agents/theory/hosts.py"}
# Who asks for the content at an age under any decay: the index of it is that of RenewalArm.
CONTENTS = {
    "crawl_env/content/utility.py": "the home of decays",
    "agents/theory/renewal.py": "the home of the index under any decay",
    "agents/theory/engine/content.py": "content in front of an indexing engine",
    "experiments/decay.py": "a figure that a report tells",
}
# z - ln(1 + az), whose root is the age at which the index reaches a level.
INVERSES = {
    "agents/theory/closed_form.py": "the home of the Whittle index",
    "crawl_env/fleet/capacity.py": "a density that has the same form",
}
INVERSE = re.compile(
    r"\b(\w+) - (math\.|np\.)?log1p\((\w+ \* )?\1\)|time_constants\((\w+) / \(1\.0 \+ \4\)\)"
)


def halves(node):
    """Whether a node is a sum times .5, or divided by 2."""
    if not isinstance(node, ast.BinOp):
        return False
    sides, factor = (node.left, node.right), 0.5 if isinstance(node.op, ast.Mult) else 2
    two = any(isinstance(side, ast.Constant) and side.value == factor for side in sides)
    added = any(isinstance(x, ast.BinOp) and isinstance(x.op, ast.Add) for x in sides)
    return two and added and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv)


def searches_in(nodes):
    """Whether a loop assigns the middle of two numbers, or a solver of SciPy's is imported."""
    loops = (node for node in nodes if isinstance(node, ast.For | ast.While))
    assigned = (x.value for loop in loops for x in ast.walk(loop) if isinstance(x, ast.Assign))
    halved = any(halves(node) for value in assigned for node in ast.walk(value))
    imported = {
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("scipy")
        for alias in node.names
    }
    return halved or bool(SOLVERS & imported)


def test_the_index_is_inverted_and_prices_are_searched_for_in_one_place():
    searching, inverting, moving, asking = set(), set(), set(), set()
    for top in ("crawl_env", "agents", "ephemeral_crawl", "experiments"):
        for file in (ROOT / top).rglob("*.py"):
            text, name = file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix()
            if facts_of(file).searches:
                searching.add(name)
            if INVERSE.search(text):
                inverting.add(name)
            if re.search(r"\b(Level)?Bracket\(", text):
                moving.add(name)
            if "integrated_survival(" in text:
                asking.add(name)
    assert searching == set(SEARCHES), "a search of its own: use agents.theory.price"
    assert inverting == set(INVERSES), "an inverse of its own: use agents.theory.closed_form"
    assert moving == BRACKETS, "a search of its own: call one of agents.theory.price"
    assert asking == set(CONTENTS), "an index of its own: use agents.theory.renewal"


# Names that two classes of a package share, since they are the same concept.
SHARED = {
    "Outcome": "what became of a fetch: as a body of HTTP, and checked",
    "Size": "how long and how often the parts of a study are run",
}


def test_no_two_classes_of_a_package_have_one_name():
    for top in ("crawl_env", "agents", "ephemeral_crawl", "experiments"):
        names = [name for file in (ROOT / top).rglob("*.py") for name in facts_of(file).classes]
        repeated = {name for name in names if names.count(name) > 1}
        assert repeated <= set(SHARED), f"{top}: rename one of each"


def test_variables_are_named_by_what_they_hold():
    """Not by what was done to it: `found` may be a solution, a status or a list of addresses."""
    participles = {"asked", "chosen", "found", "kept", "made", "said", "taken", "wanted"}
    for top in ("crawl_env", "agents", "ephemeral_crawl", "experiments"):
        for file in (ROOT / top).rglob("*.py"):
            assert not participles & facts_of(file).variables, f"{file}: name what it is"


def test_commands_and_studies_do_not_import_each_other_in_circles():
    graph = {}
    for importer, imported in imports_of("ephemeral_crawl") | imports_of("experiments"):
        graph.setdefault(importer, set()).add(imported)
    TopologicalSorter(graph).prepare()  # raises CycleError where there is a circle
    above = ("ephemeral_crawl", "experiments")
    below_core = graph["ephemeral_crawl.core"] - {"ephemeral_crawl.cluster"}
    assert not any(name.startswith(above) for name in below_core)
    assert not any(name.startswith(above) for name in graph["ephemeral_crawl.cluster"])
    fitting = {"ephemeral_crawl.fit", "ephemeral_crawl.replay"}  # which load much of SciPy
    assert not fitting & (graph["ephemeral_crawl.backtest"] | graph["ephemeral_crawl.comparison"])
    for importer, imported in imports_of("ephemeral_crawl"):
        assert not imported.startswith("experiments"), f"{importer} imports {imported}"


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
