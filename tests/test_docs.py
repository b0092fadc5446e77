"""README and documentation: code and commands run, and tables and numbers are those of the code."""

import gc
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from agents import AGENTS, registry
from agents.evaluation import benchmark, rollout
from agents.learning import LEARNERS
from agents.theory.engine import backlog
from crawl_env import CrawlEnv
from crawl_env.simulation.observation import FEATURES
from ephemeral_crawl import __main__ as commands
from ephemeral_crawl.core.results import read_csv
from experiments.__main__ import PROGRAM as STUDIES
from tests.processes import forked

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    if path.parent != DOCS / "researchers" / "task"  # written by the build
}


def blocks(language, text):
    """Return the code of the page in one language, which runs in one namespace."""
    return "\n".join(re.findall(rf"^```(?:{language})\n(.*?)^```", text, re.M | re.S))


# The cells of tutorials, too: the build of the site in the tests does not execute them.
PYTHON = {page: blocks(r"python|\{code-cell\}[^\n]*", text) for page, text in PAGES.items()}
COMMANDS = {
    page: [line for line in blocks("sh", text).replace("\\\n", " ").splitlines() if line]
    for page, text in PAGES.items()
}
FEW = ["--steps", "50"]
QUICK = {name: ["--quick", *FEW] for name in ("evaluate", "replay")}
QUICK["backtest"] = ["--quick", "--begin", "0.98"]


@pytest.fixture
def short_tasks(monkeypatch):
    """The runs of the benchmark's tasks are short, and the index of engines is rough: what agents
    earn is tested elsewhere."""
    monkeypatch.setattr(backlog, "_ROUNDS", 1)
    play = benchmark.play

    def shortly(agent, task, *more):
        return play(agent, replace(task, steps=30, warmup=5), *more)

    monkeypatch.setattr(benchmark, "play", shortly)


ON_RAY = "docs/engineers/cluster.md"


@pytest.mark.parametrize("page", [p for p, code in PYTHON.items() if code and p != ON_RAY])
def test_python_of_the_page_runs(page, tmp_path, monkeypatch, short_tasks):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "AGENTS", dict(registry.AGENTS))  # a page may register its own
    short = rollout._USUAL._replace(steps=100, warmup=10, seeds=2)  # where a page says nothing
    monkeypatch.setattr(rollout, "_USUAL", short)
    whole = rollout.check_whole  # longer runs than that are shortened, too

    def shortened(name, value, *limits):
        value = whole(name, value, *limits)
        return min(value, short.steps) if name == "steps" else value

    monkeypatch.setattr(rollout, "check_whole", shortened)
    monkeypatch.setattr(subprocess, "run", in_this_process)
    exec(compile(PYTHON[page], page, "exec"), {})


def test_python_and_commands_of_the_page_run_on_ray(tmp_path, monkeypatch, short_tasks, local_ray):
    test_python_of_the_page_runs(ON_RAY, tmp_path, monkeypatch, short_tasks)
    test_commands_of_the_page_run(ON_RAY, tmp_path, monkeypatch, short_tasks)


RUN = subprocess.run


def in_this_process(words, **options):
    """Run a command of the project as `subprocess.run` would, without importing everything anew."""
    if words[:3] != [sys.executable, "-m", "ephemeral_crawl"]:
        return RUN(words, **options)
    with redirect_stdout(StringIO()) as printed:
        name, *rest = words[3:]
        commands.main([name, *(FEW if name in ("evaluate", "replay") else []), *rest])
    return subprocess.CompletedProcess(words, 0, printed.getvalue(), "")


def runs_elsewhere(lines):
    return any(set(lines) < set(others) for others in COMMANDS.values())


RUN_HERE = [p for p, lines in COMMANDS.items() if not runs_elsewhere(lines) and p != ON_RAY]


@pytest.mark.parametrize("page", RUN_HERE)
def test_commands_of_the_page_run(page, tmp_path, monkeypatch, short_tasks):
    monkeypatch.chdir(tmp_path)
    tested = []  # what `example` prints, which its own test runs
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for line in COMMANDS[page]:
        program, *words = shlex.split(line, comments=True)
        if program == "make":  # long: the targets are what continuous integration runs
            assert set(words) <= set(targets)
            continue
        assert program == "ephemeral-crawl", f"{page}: say how to test {line!r}"
        if words in tested:
            continue
        with redirect_stdout(StringIO()) as printed:
            commands.main([words[0], *QUICK.get(words[0], []), *words[1:]])
        if words == ["example"]:
            lines = map(str.strip, printed.getvalue().splitlines())
            tested = [shlex.split(x)[1:] for x in lines if x.startswith("ephemeral-crawl ")]
            assert tested


def test_studies_that_pages_name_exist():
    known = {"mine", "NAME", *STUDIES.commands()}
    for page, text in PAGES.items():
        for name in re.findall(r"python -m experiments ([\w-]+)", text):
            assert name in known, f"{page}: {name}"


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_page_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", PAGES[page]):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def build(folder):
    """Build the site: with a plain theme, without an index for its search, and without what is
    around the text of all pages but the first, which take most of the time; pages and references
    are the same."""
    from sphinx.builders.html import StandaloneHTMLBuilder as Site
    from sphinx.cmd.build import main

    def of_start(method):
        def called(site, page, *more, **named):
            return method(site, page, *more, **named) if page == "index" else {}

        return called

    Site.search, Site.get_doc_context = False, of_start(Site.get_doc_context)
    Site.handle_page = of_start(Site.handle_page)
    gc.disable()  # looking for garbage among the trees of all pages would take a quarter of it
    settings = ["nb_execution_mode=off", "html_theme=basic", "smartquotes=0"]
    defined = [word for setting in settings for word in ("-D", setting)]
    sys.exit(main(["-nW", "--keep-going", "-q", *defined, str(DOCS), str(folder)]))


def test_the_site_builds_without_warnings(tmp_path):
    shutil.rmtree(DOCS / "api" / "generated", ignore_errors=True)  # pages of names that are gone
    done = forked(partial(build, tmp_path), cwd=ROOT, stderr=subprocess.PIPE)
    _, said = done.communicate()
    assert done.returncode == 0, said
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    outside = re.findall(r"""<(?:script|link|img)[^>]*(?:src|href)=["'](?:https?:)?//""", start)
    assert not outside, "the site must open without a network"


def first_columns(text, count):
    """Return the code in the first cells of each row of the tables."""
    rows = [line.split("|")[1 : count + 1] for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in row] for row in rows]


def test_the_table_of_policies_is_the_registry():
    table = PAGES["docs/researchers/policies.md"].partition("## Agents with memory")[0]
    shown = dict(first_columns(table, 2))
    assert shown == {name: kind.__name__ for name, kind in AGENTS.items()}


def test_the_table_of_learners_is_the_registry():
    text = PAGES["docs/researchers/learning-agents.md"]
    table = text.partition("## The learners")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == set(LEARNERS)


def section(title):
    text = inspect.cleandoc(CrawlEnv.__doc__ or "")
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_tables_of_the_environment_are_its_features_and_arguments():
    features = [name for (name,) in first_columns(section("Observation Space"), 1)]
    assert sorted(features) == sorted(FEATURES)
    table = section("Arguments").partition("| part |")[0]
    shown = {row[0]: row[2] for row in first_columns(table, 3)}
    signature = inspect.signature(CrawlEnv)
    defaults = {name: p.default for name, p in signature.parameters.items()}
    assert {name: eval(default) for name, default in shown.items()} == defaults


def test_numbers_of_the_corrections_are_in_the_record():
    text = re.sub(r"^```.*?^```", "", PAGES["docs/researchers/corrections.md"], flags=re.M | re.S)
    recorded = [float(row["value"]) for row in read_csv(ROOT / "results" / "paper" / "records.csv")]
    shown = re.findall(r"(?<![\w.])(?:\d+\.\d{3,}|\.\d{3})(?=[ ,.|])", text)
    assert len(shown) >= 12
    for number in shown:
        digits = len(number.partition(".")[2])
        assert any(round(value, digits) == float(number) for value in recorded), number


def test_the_learners_with_most_source_steps_are_those_of_the_record():
    text = PAGES["docs/researchers/learners-compared.md"]
    shown = text.partition("## With 1,000,000 source steps")[2].partition("\n## ")[0]
    tables = (ROOT / "results" / "benchmark-full" / "learners.md").read_text(encoding="utf-8")
    recorded = tables.partition("**1,000,000 source steps**")[2]

    def cells(table, start):
        rows = re.findall(rf"^\| {start}([a-z][\w-]+)`? \|(.*)\|$", table, re.M)
        return {name: [cell.strip() for cell in row.split("|")] for name, row in rows}

    page = {name: row[:3] for name, row in cells(shown, "`").items()}
    expected = {  # interquartile mean, failed runs, tasks above the best policy that learns nothing
        name: [row[1].partition(" ")[0].removeprefix("0"), row[4], row[5]]
        for name, row in cells(recorded, "(?!agent )").items()
    }
    assert page == expected
    assert list(page) == sorted(page, key=lambda name: -float(page[name][0]))


def test_numbers_of_the_start_page():
    start = PAGES["docs/index.md"]
    findings = (ROOT / "results" / "hacker-news-replay" / "findings.md").read_text(encoding="utf-8")
    for policy, shown in zip(("whittle", "nutch"), re.findall(r"\[(\d+) %\]", start), strict=True):
        row = re.findall(rf"^\| {policy} \|(.*)\|$", findings, re.M)[0]  # of content not observed
        assert round(float(row.split("|")[2].strip(" %"))) == int(shown)
    assert re.search(rf"\b{len(AGENTS) + len(LEARNERS)}\s+agents", start)


def test_the_page_of_the_environment_has_the_sections_of_its_docstring(monkeypatch):
    """`python docs/pictures.py` copies them."""
    monkeypatch.syspath_prepend(str(DOCS))
    import pictures

    page = PAGES["docs/researchers/environment.md"]
    assert page == pictures.with_sections(page)
    for line in (inspect.cleandoc(CrawlEnv.__doc__ or "")).splitlines():
        if line.startswith("| `"):  # of the tables of features and arguments
            assert line.replace("<", r"\<") in page
