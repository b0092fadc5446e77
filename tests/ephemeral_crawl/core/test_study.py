"""What every study has in common, and how studies are found."""

import dataclasses
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from ephemeral_crawl.__main__ import PROGRAM as COMMANDS
from ephemeral_crawl.core.program import Program, summary
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import ROOT
from ephemeral_crawl.core.study import ParallelStudy, RecordedStudy, Study, attributed
from experiments.__main__ import PROGRAM as STUDIES

BOTH = pytest.mark.parametrize("program", [COMMANDS, STUDIES], ids=lambda program: program.name)


@dataclass(kw_only=True)
class Example(ParallelStudy):
    """Doubles numbers. Takes no time."""

    outputs: ClassVar[tuple[str, ...]] = ("numbers.csv", *ParallelStudy.outputs)

    largest: int = 3

    def run(self):
        self.check()
        todo = [{"i": i} for i in range(self.largest)]
        done = self.runner.run(todo, lambda job: {"double": 2 * job["i"]})
        report = Report("Numbers")
        report.answer("Twice 2 is 4.")
        self.publish(report, {"numbers.csv": done, "records.csv": attributed(done)})


def test_a_study_writes_its_folder_and_forgets_what_it_kept(tmp_path, capsys):
    out = tmp_path / "out"
    Example(out=out, jobs=1, run_on="sequential").run()
    assert {p.name for p in out.iterdir()} == {"numbers.csv", "records.csv", "report.html"}
    assert (out / "numbers.csv").read_text() == "double\n0\n2\n4\n"
    assert "numpy" in (out / "records.csv").read_text().splitlines()[0]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert f"Report: {out / 'report.html'}" in capsys.readouterr().out
    assert Example().folder.parts == ("results", "test-study"), "by default named after its module"


@dataclass(kw_only=True)
class Measured(RecordedStudy, ParallelStudy):
    """Counts."""

    title: ClassVar[str] = "Counted"
    limit: int = 3

    def measure(self):
        return {"records.csv": attributed(self.runner.run([{"i": self.limit}], lambda job: job))}

    def write(self, report, tables):
        report.answer(f"It is {int(tables['records.csv'][0]['i'])}.")


def test_a_report_is_written_again_from_its_tables(tmp_path):
    arguments = {"out": tmp_path / "out", "jobs": 1, "run_on": "sequential", "limit": 41}
    with pytest.raises(ValueError, match="leave out --only-report"):
        Measured(**arguments, only_report=True).run()
    Measured(**arguments).run()
    page, table = (tmp_path / "out" / name for name in ("report.html", "records.csv"))
    before = table.read_bytes()
    page.write_text("old")
    Measured(**{**arguments, "limit": 5}, only_report=True).run()
    assert "It is 41." in page.read_text()
    assert table.read_bytes() == before


def test_a_file_that_the_study_does_not_declare_is_an_error(tmp_path):
    study, report = Example(out=tmp_path / "out"), Report("Numbers", quiet=True)
    report.answer("None.")
    with pytest.raises(ValueError, match=r"does not write \(other.csv\)"):
        study.publish(report, {"other.csv": []})
    assert not list(tmp_path.iterdir())


def test_a_new_study_is_a_folder_or_a_module(tmp_path):
    program = Program("program", tmp_path, "What it is for.")
    (tmp_path / "my_study").mkdir()
    (tmp_path / "no_study").mkdir()
    (tmp_path / "my_study" / "command.py").write_text(
        'class Mine(ParallelStudy):\n    """What does it\n    do? It runs."""\n'
    )
    (tmp_path / "no_command.py").write_text("class Mine:\n    pass\n")
    (tmp_path / "alone.py").write_text('class Alone(Study):\n    """Is one file."""\n')
    assert list(program.commands()) == ["alone", "my-study"]
    assert "alone     Is one file." in program.overview()
    assert "my-study  What does it do?" in program.overview()
    assert "It runs" not in program.overview()


@BOTH
def test_every_study_is_a_command_with_help(program, capsys):
    width = max(map(len, program.commands()))
    overview = program.overview().replace("\n", " ").replace(" " * (width + 4), "")
    for name, module in program.commands().items():
        kind = program._kind(name)
        assert kind.name() == name
        if issubclass(kind, Study) and name not in ("hacker-news", "example"):
            assert "report.html" in kind.outputs
        assert summary(module) in overview


DOCUMENTS = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]


def test_help_is_short_and_every_option_is_in_a_document(capsys):
    documented = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    of_all = ((program, name) for program in (COMMANDS, STUDIES) for name in program.commands())
    for program, name in of_all:
        shown = {}
        for option in ("--help", "--help-all"):
            with pytest.raises(SystemExit) as stop:
                program.command_of([name, option])
            text = capsys.readouterr().out
            assert stop.value.code == 0
            assert f"usage: {program.name} {name}" in text
            shown[option] = set(re.findall(r"^[│ ] (?:-h, )?(--[a-z-]+)", text, re.M)) - {"--help"}
            assert "(default: None)" not in text
            assert "{None}" not in text
            kind = program._kind(name)
            hidden = 0 < len(kind.main) < len(dataclasses.fields(kind)) and option == "--help"
            assert (f"more options: {program.name} {name} --help-all" in text) == hidden
        assert 0 < len(shown["--help"]) <= 12
        assert shown["--help"] <= shown["--help-all"]
        missing = [x for x in shown["--help-all"] if not re.search(rf"{x}\b", documented)]
        assert not missing, f"options of {name} that no document names"


def test_options_by_their_former_names_are_accepted():
    for words in (["--engine", "sequential"], ["--engine=sequential"], ["--run-on", "sequential"]):
        command = COMMANDS.command_of(["evaluate", *words, "--engine-rate", "2"])
        assert (command.run_on, command.engine_rate) == ("sequential", 2.0)


@BOTH
def test_the_overview_imports_nothing_heavy(program):
    code = (
        f"import sys, {program.folder.name}.__main__ as program; program.PROGRAM.overview();"
        "sys.exit(', '.join({'torch', 'tyro', 'matplotlib'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_command_is_answered_with_the_nearest():
    with pytest.raises(SystemExit, match="unknown command 'evalate'; did you mean 'evaluate'"):
        COMMANDS.run(["evalate"])
