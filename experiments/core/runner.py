"""Independent units of work in parallel, each kept as soon as it is finished."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import joblib
from tqdm import tqdm

from crawl_env.errors import unknown
from experiments.core.results import code_fingerprint

ENGINES = ("loky", "threading", "sequential", "ray", "dask")

Unit = dict[str, Any]  # JSON: what is run, and the key under which its result is kept
Result = dict[str, Any]  # JSON
Version = Callable[[Unit], str]  # of the code that a unit's result depends on


def run(
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    kept: Path,
    jobs: int = -1,
    engine: str = "loky",
    version: Version | None = None,
) -> list[Result]:
    """Return the results of all units, in order.

    Finished units lie in the folder `kept`; a run that was interrupted takes them up, unless the
    code has changed since: all code of the project, or what `version` says of a unit. `engine` is a
    joblib backend: loky (processes), or ray or dask where these are installed and a cluster is
    there.
    """
    _register(engine)
    kept.mkdir(parents=True, exist_ok=True)
    files = [_file(unit, kept, version) for unit in units]
    missing = [i for i, file in enumerate(files) if not file.exists()]
    with joblib.parallel_config(backend=engine, n_jobs=jobs):
        finished = joblib.Parallel(return_as="generator_unordered")(
            joblib.delayed(_numbered)(work, i, units[i]) for i in missing
        )
        progress = tqdm(finished, total=len(units), initial=len(units) - len(missing), unit="run")
        try:
            for i, result in progress:
                _write(files[i], result)
        except KeyboardInterrupt:
            progress.close()
            print(f"\nStopped. What was finished is kept in {kept};")
            print("the same command goes on from there.")
            raise SystemExit(130) from None
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def is_kept(unit: Unit, kept: Path, version: Version | None = None) -> bool:
    """Return whether a unit is among the finished ones in the folder `kept`."""
    return _file(unit, kept, version).exists()


def forget(kept: Path) -> None:
    """Remove the finished units, once a report holds their results."""
    shutil.rmtree(kept, ignore_errors=True)


def _numbered(work: Callable[[Unit], Result], i: int, unit: Unit) -> tuple[int, Result]:
    return i, work(unit)


def _file(unit: Unit, kept: Path, version: Version | None) -> Path:
    code = code_fingerprint() if version is None else version(unit)
    text = json.dumps([code, unit], sort_keys=True)
    return kept / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _write(path: Path, result: Result) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.replace(path)


def _register(engine: str) -> None:
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    try:
        if engine == "ray":
            from ray.util.joblib import register_ray  # type: ignore[import-not-found]

            register_ray()
        elif engine == "dask":
            import distributed  # type: ignore[import-not-found]

            distributed.Client()
    except ImportError as error:
        raise ValueError(f"engine {engine!r} needs {error.name}; pip install it first") from None
