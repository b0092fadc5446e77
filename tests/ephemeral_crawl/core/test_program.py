"""What a program does when it is stopped, or when nobody reads what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from tqdm import tqdm

from ephemeral_crawl.core.program import Program, readers_may_leave


def pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_closed_pipe_does_not_stop_the_work(tmp_path: Path) -> None:
    out = os.fdopen(pipe_without_reader(), "w", buffering=1)
    err = os.fdopen(pipe_without_reader(), "w")
    with out, err, redirect_stdout(out), redirect_stderr(err), readers_may_leave():
        for i in tqdm(range(3), mininterval=0):
            print("line", i, flush=i == 1)
        (tmp_path / "result").touch()
    assert (tmp_path / "result").exists()


def test_a_closed_pipe_leaves_no_traceback() -> None:
    writer = pipe_without_reader()
    words = [sys.executable, "-m", "ephemeral_crawl", "--help"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def raising(error: BaseException) -> Program:
    class Broken(Program):
        def asked_for(self, words: list[str]):  # type: ignore[no-untyped-def]
            raise error

    return Broken("program", Path(__file__).parent, "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (ValueError("x is 1"), "error: x is 1"),
        (OSError(28, "No space left"), "error: No space left"),
        (FileNotFoundError(2, "No such file", "a.csv"), "error: a.csv: No such file"),
    ],
)
def test_errors_end_with_a_sentence(error: BaseException, code: object) -> None:
    with pytest.raises(SystemExit) as stopped:
        raising(error).run([])
    assert stopped.value.code == code


def test_a_missing_file_is_named_with_its_option() -> None:
    missing = FileNotFoundError(2, "No such file", "a.csv")
    with pytest.raises(
        SystemExit, match=r"a\.csv: No such file\. Give --signals the path of a file"
    ):
        raising(missing).run(["fit", "--items", "b.csv", "--signals", "a.csv"])
