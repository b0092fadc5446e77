"""Tables of records, and the provenance that each of them states."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("crawl_env", "agents", "ephemeral_crawl", "experiments")
LIBRARIES = ("numpy", "gymnasium", "numba")
_SECRET = "--salt"  # of the commands on the benchmark


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


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the records of a CSV, as text; compressed where the name ends in .gz."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


@cache
def provenance() -> dict[str, str]:
    """Return date, command, commit, versions and machine, for every record and report."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": " ".join([_program(), *_shown(sys.argv[1:])]),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
    }


@cache
def code_fingerprint() -> str:
    """Return a hash of the code that produces records, so that stale ones are not taken up."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _shown(arguments: list[str]) -> Iterator[str]:
    """Yield the arguments as reports have them, which may be published: without an organiser's
    secret, and of an absolute path only the name."""
    for before, argument in pairwise(["", *arguments]):
        option, equals, value = argument.rpartition("=")
        if before == _SECRET:
            yield "…"
        elif argument.startswith(f"{_SECRET}="):
            yield f"{_SECRET}=…"
        else:
            value = Path(value).name if value.startswith("/") else value
            yield shlex.quote(option + equals + value)


def _program() -> str:
    """Return the words that started the program."""
    program = Path(sys.argv[0])
    package = program.parent.name if program.name == "__main__.py" else "ephemeral_crawl"
    return f"python -m {package}" if package == "experiments" else "ephemeral-crawl"


def _commit() -> str:
    """Return the commit of a checkout, or the version that is installed without one."""
    if not (ROOT / "pyproject.toml").exists():
        return f"version {version('ephemeral-crawl')}"

    def git(*words: str) -> str:
        answer = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return answer.stdout.strip() if answer.returncode == 0 else ""

    try:
        changes = git("status", "--porcelain", "--", *PACKAGES)
        return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (
            "+changes" if changes else ""
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
