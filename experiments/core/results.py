"""Where results go: folders that appear whole or not at all, and where each number comes from."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("numpy", "gymnasium")


OWN_FILES = {
    "curves.csv.gz",
    "runs.csv.gz",
    "learners.md",
    "estimates.csv",
    "items.csv.gz",
    "fresh.csv",
    "gaps.csv",
    "records.csv",
    "report.html",
    "search.jsonl",
    "search.jsonl.lock",  # of Optuna, left behind where it was killed
    "sources.csv",
    "summary.md",
    "trials.csv",
    "versus.csv",
    "world.csv",
}


def check_out(path: Path, *inputs: str) -> None:
    """Raise ValueError unless results may be written to the folder `path`.

    It must not hold anything but earlier results, nor one of the `inputs`, since it is replaced
    as a whole.
    """
    path = Path(os.path.abspath(path))
    if path.exists() and not path.is_dir():
        raise ValueError(f"--out {path.name} is a file; name a folder")
    foreign = (
        sorted(p.name for p in path.iterdir() if p.name not in OWN_FILES) if path.exists() else []
    )
    if foreign:
        listing = ", ".join(foreign[:3]) + ", …" * (len(foreign) > 3)
        raise ValueError(
            f"--out {path.name} holds files this command did not write ({listing}); name a new or "
            f"empty folder, such as {Path('results') / 'mine'}"
        )
    if any(Path(os.path.abspath(name)).is_relative_to(path) for name in inputs):
        raise ValueError(f"--out {path.name} holds an input of this command; name another folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise ValueError(f"--out {path} cannot be created: {error.strerror}") from None


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a folder beside `path` to write to; it takes the place of `path` once all is written."""
    check_out(path)
    path = Path(os.path.abspath(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    partial.mkdir(parents=True)
    try:
        yield partial
        if path.exists():
            path.replace(old)
        partial.replace(path)
    except BaseException:
        if old.exists() and not path.exists():
            old.replace(path)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)


def write_csv(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records as a tidy CSV, one row each; columns in order of first appearance.

    Compressed where the name ends in .gz, without a time stamp: the same rows make the same file.
    """
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


@cache
def provenance() -> dict[str, str]:
    """Return date, command, commit, versions and machine, for every record and report."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": "python -m experiments " + " ".join(map(_shown, sys.argv[1:])),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
    }


@cache
def code_fingerprint() -> str:
    """Return a hash of the code that produces records, so that stale ones are not taken up."""
    digest = hashlib.sha256()
    for package in ("crawl_env", "agents", "experiments"):
        for file in sorted((ROOT / package).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _shown(argument: str) -> str:
    """Reports may be published: of an absolute path only the name is kept."""
    option, equals, value = argument.rpartition("=")
    return shlex.quote(option + equals + (Path(value).name if value.startswith("/") else value))


def _commit() -> str:
    def git(*words: str) -> str:
        answer = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return answer.stdout.strip() if answer.returncode == 0 else ""

    try:
        changed = git("status", "--porcelain", "--", "crawl_env", "agents", "experiments")
        return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (
            "+changes" if changed else ""
        )
    except OSError:
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
