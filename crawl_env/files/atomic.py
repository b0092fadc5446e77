"""Files that appear whole or not at all, whoever else writes them at the same time."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path


@contextmanager
def atomic_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Give an empty file beside `path` to write to; it takes the place of `path` once written.

    If the block raises, or the process is killed, `path` stays as it was: absent, or the old file.
    The name of the new file is hidden and its own for each call, so processes and threads may write
    one path at once; the last one wins, whole. A killed process leaves its hidden file, which
    nothing reads. The file has the permissions that the user's umask gives to new files.

    Raises:
        FileNotFoundError: the folder does not exist.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with atomic_file(path) as new:
    ...     _ = new.write_text("1 2 3")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('1 2 3', 1)
    """
    target = Path(os.path.realpath(path))  # of a link, what it leads to is replaced
    if target.is_dir():
        raise IsADirectoryError(21, "this is a folder; give the path of a file", str(path))
    partial = target.with_name(f".{os.getpid()}-{secrets.token_hex(8)}.partial")
    try:
        handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileNotFoundError:
        raise FileNotFoundError(2, "no such folder; create it first", str(target.parent)) from None
    permissions = os.fstat(handle).st_mode & 0o777
    os.close(handle)
    try:
        yield partial
        os.chmod(partial, permissions)  # some writers narrow or replace what they are given
        _flush_to_disk(partial, os.O_RDWR)
        os.replace(partial, target)
        with contextlib.suppress(OSError):  # not every system lets a folder be flushed
            _flush_to_disk(target.parent, os.O_RDONLY)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: str | PathLike[str], content: bytes) -> None:
    """Write a file; it appears whole or not at all."""
    with atomic_file(path) as new:
        new.write_bytes(content)


def write_text(path: str | PathLike[str], content: str) -> None:
    """Write a file in UTF-8; it appears whole or not at all, with line ends as they are given."""
    write_bytes(path, content.encode())


def _flush_to_disk(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
