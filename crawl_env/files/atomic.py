"""Atomic writing of files: a file is written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from crawl_env.files.regular import regular


@contextmanager
def atomic_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield the path of an empty file beside `path`, which replaces `path` when the block ends.

    If the block raises, or the process is killed, `path` stays as it was: absent, or the old file.
    The temporary file is hidden and has a name of its own for each call, so that processes and
    threads may write to one path at once; the last one wins. A killed process leaves its temporary
    file behind. The file has the permissions that the user's umask gives to new files.

    Raises:
        FileNotFoundError: the directory does not exist.
        IsADirectoryError: `path` is a directory.
        ValueError: `path` is a pipe or a device.
        OSError: it cannot be written, such as on a full disk; the error names it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with atomic_file(path) as new:
    ...     _ = new.write_text("1 2 3")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('1 2 3', 1)
    """
    target = Path(os.path.realpath(path))  # writing to a link replaces the file that it points to
    if target.is_dir():
        raise IsADirectoryError(21, "this is a folder; give the path of a file", str(path))
    if target.exists():
        regular(target)  # a device is not to be replaced
    partial = target.with_name(f".{os.getpid()}-{secrets.token_hex(8)}.partial")
    try:
        handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileNotFoundError:
        raise FileNotFoundError(2, "no such folder; create it first", str(target.parent)) from None
    permissions = os.fstat(handle).st_mode & 0o777
    os.close(handle)
    try:
        yield partial
        os.chmod(partial, permissions)  # some writers restrict permissions or replace the file
        _flush_to_disk(partial, os.O_RDWR)
        os.replace(partial, target)
        with contextlib.suppress(OSError):  # not every system supports flushing a directory
            _flush_to_disk(target.parent, os.O_RDONLY)
    except OSError as error:  # such as that the disk is full
        if error.errno and str(error.filename) in ("None", str(partial)):
            error.filename = os.fspath(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: str | PathLike[str], content: bytes) -> None:
    """Write a file atomically."""
    with atomic_file(path) as new:
        new.write_bytes(content)


def write_text(path: str | PathLike[str], content: str) -> None:
    """Write a file in UTF-8 atomically, without translating line ends."""
    write_bytes(path, content.encode())


def _flush_to_disk(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
