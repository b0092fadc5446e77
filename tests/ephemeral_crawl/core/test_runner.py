"""Jobs and their kept results."""

import hashlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from joblib.externals.loky.process_executor import TerminatedWorkerError

from ephemeral_crawl.core.runner import Runner, _own


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, capsys):
    calls = []

    def work(job):
        calls.append(job["i"])
        if job["i"] == 2 and len(calls) < 4:
            raise KeyboardInterrupt
        return {"twice": 2 * job["i"]}

    runner = Runner(tmp_path / "kept", jobs=1, run_on="sequential")
    todo = [{"i": i} for i in range(4)]
    with pytest.raises(SystemExit):
        runner.run(todo, work)
    assert "goes on from there" in capsys.readouterr().out
    assert [runner.has(job) for job in todo] == [True, True, False, False]
    # What a killed process leaves half written is not taken for a result.
    (runner.folder / ".12-ab.partial").write_text('{"twi')
    assert [r["twice"] for r in runner.run(todo, work)] == [0, 2, 4, 6]
    assert calls == [0, 1, 2, 2, 3], "finished jobs are not run again"
    other = runner.folder / f"{'0' * 24}.json"
    other.write_text("{}")  # of a run that is not finished
    runner.forget()
    assert list(runner.folder.iterdir()) == [other]
    other.unlink()
    runner.forget()
    assert not runner.folder.exists()


def test_a_worker_that_is_killed_is_told_and_what_was_finished_is_kept(tmp_path, monkeypatch):
    def broken(*_):
        yield 0, {"i": 0}
        raise TerminatedWorkerError

    runner, todo = Runner(tmp_path / "kept", jobs=2), [{"i": 0}, {"i": 1}]
    monkeypatch.setattr(Runner, "_results", broken)
    with pytest.raises(ChildProcessError, match="perhaps for lack of memory; fewer --jobs"):
        runner.run(todo, dict)
    assert [runner.has(job) for job in todo] == [True, False]


def test_another_run_may_end_and_remove_what_is_stored(tmp_path):
    runner = Runner(tmp_path / "kept", jobs=1, run_on="sequential")

    def work(job):
        if job["i"]:
            runner.forget()  # as the other run does when it has published its report
        return job

    todo = [{"i": i} for i in range(3)]
    assert runner.run(todo, work) == todo
    assert runner.run(todo, work) == todo, "from what is left"


def test_what_jobs_share_is_made_to_text_once(tmp_path):
    """Such as a fleet of 10⁵ sources, which takes a quarter of a second for each job."""

    class Fleet(dict):
        asked = 0

        def items(self):
            self.asked += 1
            return super().items()

    fleet = Fleet(names=["a", "ü"], rate=[1.5, 0.1])
    runner = Runner(tmp_path, jobs=1, run_on="sequential")
    todo = [{"of": fleet, "i": i, 'a"': None} for i in range(3)]
    runner.run(todo, lambda job: {}, lambda job: "code", quiet=True)
    assert fleet.asked == 1
    texts = [json.dumps(["code", job], sort_keys=True) for job in todo]
    names = {f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json" for text in texts}
    assert {file.name for file in tmp_path.iterdir()} == names


def test_jobs_that_are_made_as_they_are_asked_for_have_keys_of_their_own(tmp_path):
    """What one of them holds may lie where something of the one before lay."""

    class Jobs(list):
        def __iter__(self):
            return ({"of": {"i": k}} for k in range(len(self)))

    runner = Runner(tmp_path, jobs=1, run_on="sequential")
    runner.run(Jobs([{"of": {"i": k}} for k in range(9)]), lambda job: {}, quiet=True)
    assert len(list(tmp_path.iterdir())) == 9


def test_results_of_another_version_of_the_code_are_not_taken_up(tmp_path):
    runner = Runner(tmp_path / "kept", jobs=1, run_on="sequential")
    todo = [{"i": 1}]
    assert runner.run(todo, lambda job: {"is": "first"}, lambda job: "a") == [{"is": "first"}]
    assert runner.run(todo, lambda job: {"is": "again"}, lambda job: "a") == [{"is": "first"}]
    assert runner.run(todo, lambda job: {"is": "new"}, lambda job: "b") == [{"is": "new"}]


def test_a_terminal_shows_the_time_while_no_part_is_finished(tmp_path, monkeypatch):
    shown = threading.Event()
    monkeypatch.setattr("ephemeral_crawl.core.runner._TICK", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("ephemeral_crawl.core.runner.tqdm.refresh", lambda *_, **__: shown.set())
    runner = Runner(tmp_path / "kept", jobs=1, run_on="sequential")
    assert runner.run([{}], lambda job: {"seen": shown.wait(60)}) == [{"seen": True}]


def test_progress_that_goes_to_a_file_is_a_line_now_and_then(tmp_path, monkeypatch, capsys):
    """Not a bar that is drawn again and again; and nothing where there is nothing to do."""
    runner = Runner(tmp_path / "kept", jobs=1, run_on="sequential")
    runner.run([], dict)
    runner.run([{"i": 0}], dict)
    assert capsys.readouterr().err == "", "it was shorter than a minute"
    monkeypatch.setattr(
        "ephemeral_crawl.core.runner.time.monotonic", itertools.count(0, 45).__next__
    )
    runner.run([{"i": i} for i in range(5)], dict)
    assert capsys.readouterr().err == (
        "3 of 5 parts, 01:30 so far, about 01:30 to go\n"
        "5 of 5 parts, 03:00 so far, about 00:00 to go\n"
    )


def test_results_of_earlier_code_are_removed_with_those_of_a_run_that_has_ended(tmp_path):
    """No later run can use them; those of other runs of this code may be of unfinished ones."""
    runner = Runner(tmp_path / "kept", jobs=1, run_on="sequential")
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr("ephemeral_crawl.core.runner.code_fingerprint", lambda: "earlier")
        runner.run([{"i": 1}], dict)
    runner.run([{"i": 2}], dict)
    other = {path for path in (tmp_path / "kept").iterdir() if "earlier" not in path.name}
    _own.clear()
    runner.run([{"i": 3}], dict)
    runner.forget()
    assert {*(tmp_path / "kept").iterdir()} == other


@pytest.mark.skipif(os.name != "posix", reason="elsewhere the number of a parent never changes")
def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    program = """
import os, sys, time
from pathlib import Path
from ephemeral_crawl.core.runner import Runner, _own

def work(job):
    os.write(1, b"begun\\n")
    time.sleep(600)

jobs = [{"i": 0}, {"i": 1}]
Runner(Path(sys.argv[1]), jobs=2).run(jobs, work, lambda job: "", quiet=True)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        try:
            assert [parent.stdout.readline() for _ in range(2)] == [b"begun\n"] * 2
            parent.kill()
            # The pipe is at its end as soon as no process is left that could write to it.
            assert select.select([parent.stdout], [], [], 60)[0], "workers outlive their parent"
            assert not parent.stdout.read()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
