"""What a program does when it is stopped, or when nobody reads what it prints."""

import dataclasses
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path

import pytest
from tqdm import tqdm

from ephemeral_crawl.__main__ import PROGRAM
from ephemeral_crawl.core.program import Program, readers_may_leave
from tests.refusals import refused


def pipe_without_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_closed_pipe_does_not_stop_the_work(tmp_path):
    out = os.fdopen(pipe_without_reader(), "w", buffering=1)
    err = os.fdopen(pipe_without_reader(), "w")
    with out, err, redirect_stdout(out), redirect_stderr(err), readers_may_leave():
        for i in tqdm(range(3), mininterval=0):
            print("line", i, flush=i == 1)
        (tmp_path / "result").touch()
    assert (tmp_path / "result").exists()


def test_libraries_may_write_to_standard_error_that_is_closed(monkeypatch):
    """Python has None for it, with which joblib and tqdm fail."""
    monkeypatch.setattr("sys.stderr", None)
    with readers_may_leave():
        sys.stderr.flush()
        assert list(tqdm(range(3), mininterval=0)) == [0, 1, 2]
    assert sys.stderr is None


def test_a_closed_pipe_leaves_no_traceback():
    writer = pipe_without_reader()
    words = [sys.executable, "-m", "ephemeral_crawl", "--help"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def raising(error):
    class Broken(Program):
        def command_of(self, words):
            raise error

    return Broken("program", Path(__file__).parent, "")


NOTED = ValueError("x is 1")
NOTED.add_note("This was in run 2.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (ValueError("x is 1"), "error: x is 1"),
        (NOTED, "error: x is 1\nThis was in run 2."),
        (OSError(28, "No space left"), "error: No space left"),
        (FileNotFoundError(2, "No such file", "a.csv"), "error: a.csv: No such file"),
    ],
)
def test_errors_end_with_a_sentence(error, code):
    with pytest.raises(SystemExit) as stopped:
        raising(error).run([])
    assert stopped.value.code == code


def test_texts_of_options_are_broken_where_the_line_ends_alone():
    """Also where a line of the source begins with no letter, such as with a number."""
    words = [sys.executable, "-m", "ephemeral_crawl", "balance", "--help"]
    plain = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    text = subprocess.run(words, capture_output=True, text=True, check=True, env=plain).stdout
    assert max(map(len, text.splitlines())) == 80
    box = [line.strip("│").rstrip() for line in text.splitlines() if line.startswith("│")]
    sides = [(line, after) for line, after in pairwise(box) if after.startswith(" " * 10)]
    assert len(sides) > 10
    for line, after in sides:
        if not line.lstrip().startswith("-"):
            assert len(line) + 1 + len(after.split()[0]) > 74, (line, after)


def test_a_missing_file_is_named_with_its_option():
    missing = FileNotFoundError(2, "No such file", "a.csv")
    with pytest.raises(
        SystemExit, match=r"a\.csv: No such file\. Give --signals the path of a file"
    ):
        raising(missing).run(["fit", "--items", "b.csv", "--signals", "a.csv"])


def toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    return repr(value) if isinstance(value, (int, float)) else f'"{value}"'


@pytest.mark.parametrize("command", ["crawl", "serve", "evaluate"])
def test_every_option_may_be_in_a_file(command, tmp_path):
    kind = PROGRAM._kind(command)
    given = {}
    for field in dataclasses.fields(kind):
        if field.default not in (None, dataclasses.MISSING):
            given[field.name] = not field.default if field.type == "bool" else field.default
    path = tmp_path / "all.toml"
    lines = (f"{name.replace('_', '-')} = {toml(value)}" for name, value in given.items())
    path.write_text("\n".join([f"[{command}]", *lines]))
    found = PROGRAM.command_of([command, "--config", str(path)])
    assert {name: toml(getattr(found, name)) for name in given} == {
        name: toml(value) for name, value in given.items()
    }


def test_the_command_line_takes_precedence_over_the_file(tmp_path):
    path = tmp_path / "crawl.toml"
    path.write_text(
        '[crawl]\nfeeds = ["a.opml", "b c.csv"]\nbudget = "20/h"\nonce = true\n[serve]\nport = 1'
    )
    found = PROGRAM.command_of(["crawl", f"--config={path}", "--budget", "5/h", "--no-once"])
    assert (found.feeds, found.budget, found.once) == (
        (Path("a.opml"), Path("b c.csv")),
        "5/h",
        False,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[crawl", "is not a TOML file"),
        ("budget = 1", "unknown command 'budget'"),
        ("crawl = 1", "in a table: [crawl]"),
        ("[crwl]", "did you mean 'crawl'"),
        ("[crawl]\nbudgets = 1", "unknown option 'budgets'; did you mean 'budget'"),
        ("[crawl]\nbudget = {a = 1}", "budget of [crawl] is {'a': 1}; give a text"),
        ("[crawl]\nstore = 1979-05-27", "give a text"),
    ],
)
def test_files_of_options_are_checked(text, words, tmp_path):
    path = tmp_path / "crawl.toml"
    path.write_text(text)
    with refused(str(path), words):
        PROGRAM.command_of(["crawl", "--config", str(path)])


def test_what_a_terminal_cannot_show_does_not_stop_the_work(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with readers_may_leave():
        print("a, b, …")
    assert raw.getvalue() == b"a, b, \\u2026\n"
