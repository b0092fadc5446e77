"""The question that a folder of results answers: options, and digests of the inputs.

It is stored beside the results, so that a command replaces its own answer to the same question and
never, unasked, the answer to another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Content, ParallelStudy

FILE = "question.json"
_HOW = ("out", "jobs", "run_on", "replace")  # not part of the question that a report answers

Question = dict[str, Any]  # JSON


@dataclass(kw_only=True)
class AnsweringStudy(ParallelStudy):
    """A study that replaces results of another question only if it is asked to."""

    replace: bool = False
    """Replace the results in --out even if they answer another question."""

    def check(self, *inputs: str | Path | None) -> None:
        super().check(*inputs)
        check_question(self.folder, self._question, self.replace)

    def publish(self, report: Report, files: Mapping[str, Content], forget: bool = True) -> None:
        super().publish(report, {**files, FILE: text_of(self._question)}, forget)

    @property
    def _question(self) -> Question:
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _HOW}
        return question(self.name(), options)


def question(command: str, options: Mapping[str, Any]) -> Question:
    """Return the question that a command asks with these options; of a path to a file, the file's
    digest counts, and not where it lies."""
    return {"command": command, **{name: _stored(value) for name, value in options.items()}}


def text_of(asked: Question) -> str:
    """Return the question as JSON, to be stored."""
    return json.dumps(asked, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def check_question(folder: Path, asked: Question, replace: bool) -> None:
    """Raise ValueError if a folder holds results of another question that may not be replaced."""
    if replace or not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        known = json.loads((folder / FILE).read_text(encoding="utf-8"))
        differs = [name for name in asked if asked[name] != known.get(name)]
        if any(_is_missing(asked[name], known.get(name)) for name in differs):
            return  # reading the file raises the error that helps
        of = ", ".join(f"{_option(name)} {_shown(known.get(name))}" for name in differs[:3])
        of += ", …" * (len(differs) > 3)
    except (OSError, ValueError, AttributeError):
        differs, of = ["?"], "which is not recorded"
    if differs:
        raise ValueError(
            f"{folder} holds the report of another question ({of}); name another folder with "
            f"--out {folder}-2, or allow that it is replaced with --replace"
        )


def _stored(value: Any) -> Any:
    if isinstance(value, str | Path) and value and Path(value).is_file():
        path = Path(value)
        with path.open("rb") as file:  # which may not fit in memory
            return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    if isinstance(value, Path):
        return value.name
    return list(value) if isinstance(value, tuple) else value


def _is_missing(asked: Any, known: Any) -> bool:
    """Return whether a file was read before, and the one named now does not exist."""
    return isinstance(known, dict) and isinstance(asked, str) and bool(Path(asked).suffix)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value.get('file', '?')} as it was then"
    if isinstance(value, list):
        return ",".join(map(str, value[:2])) + ",…" * (len(value) > 2)
    return "not given" if value in (None, "", False) else str(value)
