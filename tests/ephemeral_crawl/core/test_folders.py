"""Folders of results, and processes that are killed while they write them."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ephemeral_crawl.core import folders
from ephemeral_crawl.core.folders import check_folder, recover, whole_folder

OUTPUTS = ("records.csv", "report.html", "*.png")

# Writes a folder, and is killed at a step: before the n-th renaming or removal.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from ephemeral_crawl.core import folders

path, last = Path(sys.argv[1]), int(sys.argv[2])
steps = 0

def step(function):
    def counted(*arguments, **keywords):
        global steps
        if Path(arguments[0]).exists():
            if steps == last:
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1
        return function(*arguments, **keywords)
    return counted

os.replace, shutil.rmtree = step(os.replace), step(shutil.rmtree)
with folders.whole_folder(path) as folder:
    (folder / "records.csv").write_text("new")
print(steps)
"""


def write(path, text):
    with whole_folder(path) as folder:
        (folder / "records.csv").write_text(text)


def killed(path, step):
    words = [sys.executable, "-c", KILLED, str(path), str(step)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("before", [True, False], ids=["replacing", "first"])
def test_a_killed_process_leaves_the_old_results_or_the_new_ones(tmp_path, capsys, before):
    path = tmp_path / "out"
    if before:
        write(path, "old")
    finished = killed(tmp_path / "counted" / "out", 99)
    steps = int(finished.stdout) + 2 * before  # the old folder is renamed, and removed
    found = []
    for step in range(steps):
        folder = tmp_path / str(step) / "out"
        if before:
            write(folder, "old")
        assert killed(folder, step).returncode == -signal.SIGKILL
        recovered = recover(folder)
        assert recovered == ("recovered the complete results" in capsys.readouterr().err)
        found.append((folder / "records.csv").read_text() if folder.exists() else None)
        assert {p.name for p in folder.parent.iterdir()} <= {"out"}, "nothing hidden is left"
        assert not recover(folder)
    # Once it is complete a folder is never lost; before, the old one stays.
    assert found == ["old" if before else None, *["new"] * (steps - 1)]


def test_what_a_running_process_writes_is_left_alone(tmp_path):
    path = tmp_path / "out"
    with whole_folder(path) as folder:
        (folder / "records.csv").write_text("new")
        assert not recover(path)
        assert folder.exists()
    assert (path / "records.csv").read_text() == "new"


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_failure_keeps_results_and_leaves_nothing_behind(tmp_path, monkeypatch, step):
    path = tmp_path / "out"
    write(path, "old")
    rename, calls = os.replace, []

    def breaks(source, target):
        calls.append(source)
        if len(calls) == step + 1:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", breaks)
    with pytest.raises(KeyboardInterrupt):
        write(path, "new")
    monkeypatch.undo()
    recover(path)
    assert (path / "records.csv").read_text() == ("new" if step else "old")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_processes_that_replace_a_folder_at_once_leave_one_whole(tmp_path):
    path = tmp_path / "out"
    texts = [str(i) * 1000 for i in range(8)]
    threads = [threading.Thread(target=write, args=(path, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (path / "records.csv").read_text() in texts
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_place_that_was_taken_for_a_moment_is_tried_again(tmp_path, monkeypatch):
    replace, taken = os.replace, [True]

    def busy(source, target):
        if target == tmp_path / "out" and taken.pop():
            taken.append(False)
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        replace(source, target)

    monkeypatch.setattr(os, "replace", busy)
    write(tmp_path / "out", "new")
    assert taken == []
    assert (tmp_path / "out" / "records.csv").read_text() == "new"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "device: .*out"),
        (OSError("what happened"), "^what happened$"),
    ],
)
def test_a_full_disk_is_named_by_the_folder(tmp_path, error, words):
    with pytest.raises(OSError, match=words), whole_folder(tmp_path / "out"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_only_results_of_the_same_study_are_replaced(tmp_path):
    out = tmp_path / "out"
    check_folder(out, OUTPUTS)
    out.mkdir()
    for name in ("records.csv", "report.html", "regret.png"):
        (out / name).touch()
    check_folder(out, OUTPUTS, "elsewhere.csv")
    with pytest.raises(ValueError, match="holds an input of this command"):
        check_folder(out, OUTPUTS, out / "records.csv")
    with pytest.raises(ValueError, match=r"does not write \(regret.png\)"):
        check_folder(out, ("records.csv", "report.html"))
    with pytest.raises(ValueError, match=r"records\.csv is a file; name a folder"):
        check_folder(out / "records.csv", OUTPUTS)
    with pytest.raises(ValueError, match="cannot be created"):
        check_folder(out / "records.csv" / "mine", OUTPUTS)


@pytest.mark.parametrize("out", [".", "..", "/"])
def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch, out):
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    with pytest.raises(ValueError, match="is the current folder or contains it"):
        check_folder(Path(out), OUTPUTS)


def test_without_locks_nothing_is_lost_either(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "fcntl", None)
    write(tmp_path / "out", "old")
    (tmp_path / "out").rename(tmp_path / ".out.12ab.complete")
    assert recover(tmp_path / "out")
    assert (tmp_path / "out" / "records.csv").read_text() == "old"
