"""Runs independent jobs in parallel, and stores the result of each as soon as it finishes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
from tqdm import tqdm

from crawl_env.errors import check_choice
from crawl_env.files.atomic import write_text
from ephemeral_crawl.core.results import code_fingerprint

_BAR = "{bar:20} {n_fmt} of {total_fmt} parts, {elapsed} so far, about {remaining} to go"
ENGINES = ("loky", "threading", "sequential", "ray", "dask")

Job = dict[str, Any]  # JSON: what is run, and the key under which its result is kept
Result = dict[str, Any]  # JSON
Version = Callable[[Job], str]  # of the code that a job's result depends on


@dataclass(frozen=True)
class Runner:
    """Runs jobs, and stores their results in a folder until a report has been written.

    Arguments:
        kept: folder of the results. An interrupted run resumes from them, unless the code has
            changed.
        jobs: processes; −1 for all cores.
        engine: a joblib backend: loky (processes), threading or sequential, or ray or dask if
            installed and a cluster is available.
    """

    kept: Path
    jobs: int = -1
    engine: str = "loky"

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
            ValueError: an unknown engine, or one that is not installed.
            SystemExit: stopped by Ctrl-C; finished jobs are kept.
        """
        self._register()
        self.kept.mkdir(parents=True, exist_ok=True)
        files = [self._file(job, version) for job in todo]
        missing = [i for i, file in enumerate(files) if not file.exists()]
        with joblib.parallel_config(backend=self.engine, n_jobs=self.jobs):
            finished = joblib.Parallel(return_as="generator_unordered")(
                joblib.delayed(_numbered)(work, i, todo[i]) for i in missing
            )
            done = len(todo) - len(missing)
            progress = tqdm(finished, total=len(todo), initial=done, disable=quiet, bar_format=_BAR)
            try:
                for i, result in progress:
                    write_text(files[i], json.dumps(result))
            except KeyboardInterrupt:
                progress.close()
                kept = sum(file.exists() for file in files)
                if kept:
                    print(f"\nStopped. {kept} of {len(todo)} parts are finished, and kept in")
                    print(f"{self.kept}; the same command goes on from there.")
                else:
                    print(f"\nStopped before the first of {len(todo)} parts was finished.")
                raise SystemExit(130) from None
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def has(self, job: Job, version: Version | None = None) -> bool:
        """Return whether the result of a job is stored."""
        return self._file(job, version).exists()

    def forget(self) -> None:
        """Remove the stored results."""
        shutil.rmtree(self.kept, ignore_errors=True)

    def _file(self, job: Job, version: Version | None) -> Path:
        code = code_fingerprint() if version is None else version(job)
        text = json.dumps([code, job], sort_keys=True)
        return self.kept / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def _register(self) -> None:
        check_choice("engine", self.engine, ENGINES)
        try:
            if self.engine == "ray":
                from ray.util.joblib import register_ray  # type: ignore[import-not-found]

                register_ray()
            elif self.engine == "dask":
                import distributed  # type: ignore[import-not-found]

                distributed.Client()
        except ImportError as error:
            raise ValueError(
                f"engine {self.engine!r} needs {error.name}; pip install it first"
            ) from None


def _numbered(work: Callable[[Job], Result], i: int, job: Job) -> tuple[int, Result]:
    return i, work(job)
