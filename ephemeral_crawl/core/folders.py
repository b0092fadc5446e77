"""Folders of results: they appear whole or not at all, and a stopped process loses none of them.

A new folder is written under a hidden name beside its place (`.NAME.TOKEN.partial`), flushed to
disk, and then renamed to `.NAME.TOKEN.complete`: from here on it counts. The folder that it
replaces is moved aside (`.NAME.TOKEN.old`), the complete one moves to its place, and the old one is
removed. A process may be killed between any two of these steps. `recover`, with which every study
begins, then finishes what is left: a complete folder is put in its place.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Windows, where a folder cannot be locked
    fcntl = None  # type: ignore[assignment]

PARTIAL, COMPLETE, OLD = "partial", "complete", "old"


def check_folder(
    path: Path, outputs: Sequence[str], *inputs: str | Path, option: str = "--out"
) -> None:
    """Raise ValueError unless results may be written to the folder `path`.

    It is replaced as a whole. So it must hold nothing but earlier results of the same study, and
    none of the study's inputs.

    Arguments:
        outputs: names of the files that the study writes, or patterns of names ("*.png").
        inputs: files that the study reads.
        option: which named the folder.
    """
    path = Path(os.path.abspath(path))
    if path.exists() and not path.is_dir():
        raise ValueError(f"{option} {path.name} is a file; name a folder")
    if Path.cwd().is_relative_to(path):
        raise ValueError(
            f"{option} {path} is the current folder or contains it, and is replaced as a whole; "
            f"name another one, such as {Path('results') / 'mine'}"
        )
    foreign = _foreign(path, outputs)
    if foreign:
        listing = ", ".join(foreign[:3]) + ", …" * (len(foreign) > 3)
        raise ValueError(
            f"{option} {path.name} holds files that this study does not write ({listing}); name a "
            f"new or empty folder, such as {Path('results') / 'mine'}"
        )
    if any(Path(os.path.abspath(name)).is_relative_to(path) for name in inputs):
        raise ValueError(
            f"{option} {path.name} holds an input of this command; name another folder"
        )
    check_place(path, option)


def check_place(path: Path, option: str) -> None:
    """Raise ValueError unless a file or a folder can be made at `path`, and the folders above it.
    None of these are left behind, since what follows may be refused."""
    try:
        place = next(folder for folder in path.parents if os.path.exists(folder))
        with tempfile.TemporaryDirectory(dir=place, prefix=f".{path.name}.") as trial:
            (Path(trial) / path.relative_to(place)).mkdir(parents=True)
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be created: {error.strerror}") from None


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to write to; it takes the place of `path` once all is written.

    If the block raises, `path` stays as it was; an error of the system that names no file, such as
    that the disk is full, names `path`. If the process is killed, `path` is the old folder
    or the new one after the next `recover`, and the new one if it was complete.
    """
    path = Path(os.path.abspath(path))
    token = secrets.token_hex(4)
    partial = _hidden(path, token, PARTIAL)
    partial.mkdir(parents=True)
    try:
        with _lock(partial):
            yield partial
            for file in [*partial.rglob("*"), partial]:
                _flush_to_disk(file)
            complete = _hidden(path, token, COMPLETE)
            os.replace(partial, complete)
            _take_place(complete, path, token)
    except OSError as error:
        if error.errno and not error.filename:  # without a number, the name would hide the message
            error.filename = str(path)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def recover(path: Path) -> bool:
    """Put a complete folder that a killed process left beside `path` in its place, and remove what
    else it left; return whether there was one. The folders of running processes are left alone."""
    path = Path(os.path.abspath(path))
    is_recovered = False
    for state in (COMPLETE, OLD, PARTIAL):
        for folder, token in sorted(_leftovers(path, state), key=lambda x: x[0].stat().st_mtime):
            with _lock(folder) as is_ours:
                if not is_ours or not folder.exists():  # a running process is at work here
                    continue
                if state == COMPLETE:
                    _take_place(folder, path, token)
                    is_recovered = True
                elif state == OLD and not path.exists():
                    folder.rename(path)
                else:
                    shutil.rmtree(folder, ignore_errors=True)
    if is_recovered:
        print(
            f"{path.name}: recovered the complete results of a run that was stopped while it put "
            "them in place",
            file=sys.stderr,
        )
    return is_recovered


def _take_place(complete: Path, path: Path, token: str) -> None:
    """Move a complete folder to its place, and remove what was there."""
    old = _hidden(path, token, OLD)
    try:
        while True:
            shutil.rmtree(old, ignore_errors=True)  # the complete folder supersedes it
            with suppress(FileNotFoundError):
                os.replace(path, old)
            try:
                os.replace(complete, path)
                break
            except OSError as error:
                # Another process has put its own folder there, which a third may have moved since.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not path.exists():
                    raise
    finally:  # also where Ctrl-C has stopped it between the two
        if complete.exists() and not path.exists():
            complete.rename(path)
    _flush_to_disk(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _hidden(path: Path, token: str, state: str) -> Path:
    return path.with_name(f".{path.name}.{token}.{state}")


def _leftovers(path: Path, state: str) -> list[tuple[Path, str]]:
    """Return the hidden folders of a state that lie beside a path, with their tokens."""
    name = re.compile(rf"\.{re.escape(path.name)}\.([0-9a-f]+)\.{state}")
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    return [(folder, match[1]) for folder in beside if (match := name.fullmatch(folder.name))]


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder, which the system releases when the process ends; yield whether it
    could be acquired."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield fcntl is None
        return
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
        yield True
    finally:
        os.close(handle)


def _foreign(path: Path, outputs: Sequence[str]) -> list[str]:
    """Return the names of files in a folder that are none of these outputs."""
    names = sorted(file.name for file in path.iterdir()) if path.exists() else []
    return [name for name in names if not any(fnmatch.fnmatchcase(name, own) for own in outputs)]


def _flush_to_disk(path: Path) -> None:
    with suppress(OSError):  # not every system lets a folder be flushed
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
