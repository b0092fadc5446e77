"""Runs independent jobs in parallel, and stores the result of each as soon as it finishes."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
from tqdm import tqdm

from crawl_env.errors import check_choice
from crawl_env.files.atomic import write_text
from crawl_env.processes import end_with_parent
from ephemeral_crawl.cluster.connection import run_tasks
from ephemeral_crawl.core.results import code_fingerprint

_TEXT = "{n_fmt} of {total_fmt} parts, {elapsed} so far, about {remaining} to go"
_TICK = 1.0  # seconds
_EVERY = 60.0  # seconds between two lines of progress that are no terminal's
PLACES = ("loky", "threading", "sequential", "ray")

Job = dict[str, Any]  # JSON: what is run, and the key under which its result is kept
Result = dict[str, Any]  # JSON
T = TypeVar("T")
Version = Callable[[Job], str]  # of the code that a job's result depends on
_JsonCache = dict[int, tuple[object, bytes]]  # values that jobs share, and their JSON, by identity
_own = set[Path]()  # files of the results that this process has asked for


@dataclass(frozen=True)
class Runner:
    """Runs jobs, and stores their results in a folder until a report has been written.

    Arguments:
        folder: where results are kept. An interrupted run resumes from them, unless the code has
            changed.
        jobs: processes; −1 for all cores.
        run_on: a joblib backend, which is loky (processes), threading or sequential; or ray (see
            `ephemeral_crawl.cluster.connection`).

    Raises:
        ValueError: an unknown place to run, or no processes.
    """

    folder: Path
    jobs: int = -1
    run_on: str = "loky"

    def __post_init__(self) -> None:
        check_choice("place to run", self.run_on, PLACES)
        if self.jobs == 0:
            raise ValueError("jobs is 0; give a number of processes, or -1 for all cores")

    def run(
        self,
        todo: Sequence[Job],
        work: Callable[[Job], Result],
        version: Version | None = None,
        quiet: bool = False,
    ) -> list[Result]:
        """Return the results of all jobs, in order.

        Arguments:
            quiet: whether no progress is shown.
            version: returns the version of the code that a job's result depends on; by default it
                depends on all code of the project.

        Raises:
            ModuleNotFoundError: jobs run on ray, which is not installed.
            ChildProcessError: a worker process was killed; with Ray, again and again on one job.
            SystemExit: stopped by Ctrl-C; finished jobs are kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        cache: _JsonCache = {}
        files = [self._file(job, version, cache) for job in todo]
        _own.update(files)
        texts = {i: text for i, file in enumerate(files) if (text := _text(file)) is not None}
        missing = {i: todo[i] for i in range(len(todo)) if i not in texts}
        results = self._results(work, missing)
        try:
            with closing(_shown(results, len(todo), len(missing), quiet)) as progress:
                for i, result in progress:
                    texts[i] = json.dumps(result)
                    self._keep(files[i], texts[i])
        except KeyboardInterrupt:
            number_kept = sum(file.exists() for file in files)
            if number_kept:
                print(f"\nStopped. {number_kept} of {len(todo)} parts are finished, and kept in")
                print(f"{self.folder}; the same command goes on from there.")
            else:
                print(f"\nStopped before the first of {len(todo)} parts was finished.")
            raise SystemExit(130) from None
        except BrokenProcessPool:
            raise ChildProcessError(
                "a worker process was ended, perhaps for lack of memory; fewer --jobs need less. "
                "What was finished is kept, and the same command goes on from there"
            ) from None
        return [json.loads(texts[i]) for i in range(len(todo))]

    def has(self, job: Job, version: Version | None = None) -> bool:
        """Return whether the result of a job is stored."""
        return self._file(job, version, {}).exists()

    def forget(self) -> None:
        """Remove the stored results, but for those that only other runs of this code have asked
        for: they may be unfinished."""
        present = code_fingerprint()
        for path in self.folder.glob("*"):
            code, dash, _ = path.stem.partition("-")
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.suffix != ".json" or path in _own or (dash and code != present):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # it is not empty, or there is none
            self.folder.rmdir()

    def _keep(self, file: Path, text: str) -> None:
        # Another run with the same folder may end, and remove what is stored, at any time.
        with suppress(FileNotFoundError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(file, text)

    def _file(self, job: Job, version: Version | None, cache: _JsonCache) -> Path:
        """Return where the result of a job is kept; `cache`: the JSON of what jobs share, such as
        a large fleet, by its identity."""
        code = code_fingerprint() if version is None else version(job)
        prefix = f"{code}-" if version is None else ""  # by which what is out of date is found
        digest = hashlib.sha256(f"[{json.dumps(code)}, ".encode())
        for k, name in enumerate(sorted(job)):
            digest.update(f"{', ' if k else '{'}{json.dumps(name)}: ".encode())
            digest.update(_shared_json(job[name], cache))
        digest.update(b"}]")
        return self.folder / f"{prefix}{digest.hexdigest()[:24]}.json"

    def _results(
        self, work: Callable[[Job], Result], jobs: Mapping[int, Job]
    ) -> Iterator[tuple[int, Result]]:
        if self.run_on == "ray":
            return run_tasks(work, jobs, self.jobs)
        parallel = joblib.Parallel(
            self.jobs, self.run_on, return_as="generator_unordered", initializer=end_with_parent
        )
        return parallel(joblib.delayed(_with_number)(work, i, job) for i, job in jobs.items())


def _shown(results: Iterable[T], total: int, missing: int, quiet: bool) -> Generator[T, None, None]:
    """Yield results, and show how many there are: by a bar on a terminal, and elsewhere, such as in
    the log of a job, by a line a minute at most.

    Arguments:
        total: number of all parts.
        missing: number of those that the results are of; the others were finished before.
        quiet: whether nothing is shown.
    """
    done, quiet = total - missing, quiet or not missing
    if not quiet and sys.stderr.isatty():
        with (
            tqdm(results, total=total, initial=done, bar_format=f"{{bar:20}} {_TEXT}") as bar,
            _ticking(bar),
        ):
            yield from bar
        return
    start = last = time.monotonic()
    for number, result in enumerate(results, done + 1):
        yield result
        now = time.monotonic()
        if now - last >= _EVERY and not quiet:
            text = tqdm.format_meter(number, total, now - start, initial=done, bar_format=_TEXT)
            print(text, file=sys.stderr)
            last = now


@contextmanager
def _ticking(progress: tqdm[Any]) -> Iterator[None]:
    """Return a context in which the time that has passed is shown also while no part is finished:
    one of a large fleet takes long."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(_TICK):
            progress.refresh()

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        ended.set()
        ticker.join()


def _shared_json(value: object, cache: _JsonCache) -> bytes:
    """Return a value as JSON, which is made once. The value is kept, so that no other one gets its
    identity."""
    if id(value) not in cache:
        cache[id(value)] = value, json.dumps(value, sort_keys=True).encode()
    return cache[id(value)][1]


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _with_number(work: Callable[[Job], Result], i: int, job: Job) -> tuple[int, Result]:
    return i, work(job)


def result_of(measurement: Any) -> Result:
    """Return measurements, a named tuple of arrays and numbers, as JSON."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in measurement._asdict().items()
    }


def measured_of(kind: Callable[..., T], result: Result) -> T:
    """Return the named tuple that `result_of` was given."""
    arrays = {name: np.array(x) for name, x in result.items() if isinstance(x, list)}
    return kind(**{**result, **arrays})
