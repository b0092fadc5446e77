"""A journal in a SQLite file."""

from __future__ import annotations

import copy
import ctypes
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crawl_env.errors import counted
from crawl_env.files.regular import regular
from ephemeral_crawl.live.errors import DamagedStore, StoreLocked
from ephemeral_crawl.live.journal.base import PATIENCE, RESTORE, VERSION, SqlJournal

APPLICATION = 0x4570436C  # "EpCl", which marks the file as one of these
_BLOCK = 1024  # frames of a log that are read at once
_LEAST = 512  # bytes of a file with something in it
_LOG_HEADER, _FRAME_HEADER = 32, 24  # bytes of a write-ahead log, and of each of its frames
_PAUSE = 0.05  # seconds between attempts
_MOUNTS = Path("/proc/self/mountinfo")  # of Linux
_NETWORKS = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "fuse.", "glusterfs", "lustre", "gfs2")
_WRITABLE = (
    "it and its folder must be writable, also to read it; or copy it to a folder that is, with the "
    "file -wal beside it, if there is one"
)
_ADVICE = {  # by the error of SQLite
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_TOOBIG: "change fewer sources at once",  # an event has a gigabyte at most
    sqlite3.SQLITE_IOERR: "check the disk, and whether it is full",
    sqlite3.SQLITE_READONLY: _WRITABLE,
    sqlite3.SQLITE_CANTOPEN: _WRITABLE,
}
_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
_TABLES = (
    "CREATE TABLE journal (number INTEGER PRIMARY KEY, event TEXT NOT NULL, checksum INTEGER) "
    "STRICT",
    "CREATE TABLE snapshot (number INTEGER NOT NULL, part INTEGER NOT NULL, last INTEGER NOT NULL, "
    "state BLOB NOT NULL, checksum INTEGER, PRIMARY KEY (number, part)) STRICT",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
_LOG = logging.getLogger(__name__)


class SqliteJournal(SqlJournal):
    """A journal in a SQLite file with a write-ahead log.

    Commits survive that the process is killed. With `full`, they also survive a power failure, at
    the price of a write to the disk per commit.

    Nothing but SQLite opens the file: when a process closes a file, POSIX drops all locks that it
    has on it, and another process would delete the log that this one writes to. For the same
    reason no connection goes through a fork.

    Arguments:
        patience: seconds for which it waits for another process that changes the file.
        new: called with the name of the file before it is made.

    Raises:
        FileNotFoundError: the folder does not exist.
        StoreLocked: another process changes the file.
        OSError: the file cannot be used.
        ValueError: the file is not one of a scheduler, or of another version.
    """

    def __init__(
        self,
        path: Path,
        *,
        full: bool = False,
        patience: float = PATIENCE,
        new: Callable[[str], object] = lambda name: None,
    ) -> None:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
        self.name, self._full, self._patience = str(path), full, patience
        self._closed = False
        self._path = Path(os.path.realpath(path))  # as SQLite names the log
        self._companions = [f"{self._path}{end}" for end in ("-wal", "-shm")]
        self._files: tuple[int, ...] | None = None  # that are used
        self._is_lost = False  # whether others have their names
        self._connection: sqlite3.Connection | None = None
        if was_new := is_new(path):
            new(self.name)
        elif path.stat().st_nlink > 1:
            raise ValueError(
                f"{path} has another name, too (a hard link), and a program that uses that one "
                "would not see what is written here; copy the file instead"
            )
        _warn_of_networks(self._path)
        try:
            self._connect("rwc")
            self._prepare(was_new)
        except sqlite3.DatabaseError as error:
            self.close()
            raise self._unusable(error) from error
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------------------- connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = self._connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self._patience,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._full else 'NORMAL'}")
        return connection

    def _use(self) -> sqlite3.Connection:
        """Return the connection, a new one after a fork."""
        if self._is_lost:
            self._lose()
        if self._closed:
            raise ValueError(f"the scheduler of {self.name} is closed; open it again")
        if self._connection is not None:
            return self._connection
        try:
            connection = self._connect("rw")
            connection.execute("PRAGMA schema_version")  # which opens the log
        except sqlite3.DatabaseError as error:
            self._connection = None
            raise self._unusable(error) from error
        before, self._files = self._files, self._identity()
        if before is not None and (self._files or ())[:2] != before[:2]:
            self._lose()
        return connection

    def _identity(self) -> tuple[int, ...] | None:
        """Return which files have the names of the store, its log and the index of that, which has
        the locks of writers; None if one is missing. While one is used, they are the same."""
        try:
            file = os.stat(self._path)
            return file.st_dev, file.st_ino, *(os.stat(name).st_ino for name in self._companions)
        except OSError:
            return None

    def _keep_place(self) -> None:
        """Close, and raise an error, if what is written would be lost."""
        if self._identity() != self._files:
            self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        self.close()
        raise OSError(
            f"{self.name}, or its -wal or -shm beside it, was deleted, moved or replaced while it "
            "was in use: the last change may be lost, and nothing more is written. Put the files "
            "in place, and open the scheduler again"
        )

    def _unusable(self, error: sqlite3.DatabaseError) -> OSError | ValueError:
        return unusable(self.name, error, self._patience)

    def place(self) -> object:
        return self._path

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        identity = self._identity()
        if identity is not None and self._files is not None and identity != self._files:
            # The files of others have the names: SQLite would delete their log.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        else:  # what is in a log that was deleted is saved
            connection.close()

    def again(self) -> Self:
        journal = copy.copy(self)
        journal._connection = None
        _ = journal._use()
        return journal

    def close(self) -> None:
        self._closed = True
        self.disconnect()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self.close()

    # ---------------------------------------------------------------------------- tables

    def _prepare(self, was_new: bool) -> None:
        has_tables = self._has_tables()
        self._write_ahead()
        self._check_log()
        if has_tables:
            self.check_writable()
            return
        with self.exclusive():
            if not self._has_tables():  # another process may have made them since
                if not was_new:
                    _LOG.warning(
                        "%s was an empty database, and a new scheduler starts in it. If it is a "
                        "copy of one that was in use, the sources are in the file -wal beside the "
                        "original: copy both",
                        self.name,
                    )
                for statement in _TABLES:
                    self.rows(statement)

    def _write_ahead(self) -> None:
        end = time.monotonic() + self._patience
        while True:
            try:
                ((mode,),) = self.rows("PRAGMA journal_mode = WAL")
            except StoreLocked:  # at once: it does not wait for others by itself
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
            else:
                break
        self.rows("PRAGMA schema_version")  # which opens the log
        self._files = self._identity()
        if mode != "wal" or self._files is None:
            raise OSError(f"{self.name} cannot have a write-ahead log there; use a local disk")

    def _check_log(self) -> None:
        """Warn if commits in the log are lost."""
        ((page,),) = self.rows("PRAGMA page_size")
        if _number_lost(self._companions[0], page):
            with self.exclusive():  # so that all commits are whole
                _warn_of_lost(self._companions[0], page)

    def _has_tables(self) -> bool:
        """Return whether there are tables; refuse files whose tables are not exactly those of this
        version: those of others could have triggers, views or computed columns."""
        if not (objects := self.rows(_OBJECTS)):
            return False
        ((application,),) = self.rows("PRAGMA application_id")
        if application == APPLICATION:
            ((version,),) = self.rows("PRAGMA user_version")
            self.check_version(version)
        with closing(sqlite3.connect(":memory:")) as ours:
            for statement in _TABLES:
                ours.execute(statement)
            if application != APPLICATION or objects != ours.execute(_OBJECTS).fetchall():
                raise ValueError(
                    f"{self.name} is a SQLite file, but not one of a scheduler; give the name of a "
                    "new file"
                )
        return True

    # ---------------------------------------------------------------------------- journal

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        connection = self._use()
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("COMMIT")
            self._keep_place()
        except BaseException as error:
            if self._connection is connection and connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.DatabaseError):
                raise self._unusable(error) from error
            raise

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._use().execute(statement, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error


def is_new(path: Path) -> bool:
    """Return whether there is no SQLite file yet: none at all, or an empty one.

    The file is not opened: to close it would drop the locks that SQLite has on it in this process.

    Raises:
        ValueError: the file is another, or no regular one; longer ones are left to SQLite to
            refuse.
    """
    try:
        size = os.stat(regular(path)).st_size
    except FileNotFoundError:
        return True
    if 0 < size < _LEAST:  # SQLite takes one of a byte for a new one
        raise ValueError(f"{path} is not a database of SQLite; give the name of a new file")
    return size == 0


def remove_file(path: Path) -> None:
    """Remove a file that nobody uses, with its log and the index of that, as far as they exist and
    can be removed."""
    name = os.path.realpath(path)  # as SQLite names the log
    for end in ("-wal", "-shm", ""):
        with suppress(OSError):
            os.unlink(f"{name}{end}")


def unusable(name: str, error: sqlite3.DatabaseError, patience: float) -> OSError | ValueError:
    """Return the exception to raise for an error of SQLite.

    Arguments:
        name: of the file.
        patience: seconds for which others that use it were waited for.
    """
    message = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # Python's own errors have none
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLocked(name, patience)
    if code == sqlite3.SQLITE_NOTADB:
        return DamagedStore(
            f"{name} is not a database of SQLite, or its beginning is damaged; give the name of a "
            f"new file. {RESTORE}"
        )
    if code == sqlite3.SQLITE_CORRUPT or "malformed" in message or "decode" in message:
        return DamagedStore(f"{name} is damaged: {message}. {RESTORE}")
    advice = _ADVICE.get(code, "")
    return OSError(f"{name} cannot be used: {message}{'; ' * bool(advice)}{advice}")


def copy_file(store: Path, to: Path) -> None:
    """Copy a store to a new file, and change nothing: what is in its log stays there. Others may
    use the store meanwhile. Commits that are lost are warned of. Of a store that nobody uses, in a
    folder that cannot be written, a copy is left beside the new file if it has a log.

    Raises:
        OSError: a file cannot be read or written.
        sqlite3.Error: it cannot be read, or the copy cannot be written.
    """
    path = Path(os.path.realpath(store))  # as SQLite names the log
    log, options = f"{path}-wal", "mode=ro"
    if not os.access(path.parent, os.W_OK):  # SQLite makes a log and its index, even to read it
        if not os.path.exists(log):
            options = "immutable=1"
        elif not os.path.exists(f"{path}-shm"):  # nobody uses it
            path = Path(shutil.copyfile(path, f"{to}.original"))
            _ = shutil.copyfile(log, f"{path}-wal")
    with (
        closing(sqlite3.connect(f"{path.as_uri()}?{options}", uri=True)) as old,
        closing(sqlite3.connect(to)) as new,
    ):
        ((page,),) = old.execute("PRAGMA page_size")
        if _number_lost(log, page):
            time.sleep(_PAUSE)  # in which a commit that is being written becomes whole
            _warn_of_lost(log, page)
        old.backup(new)


def _warn_of_lost(log: str, page: int) -> None:
    """Warn of commits in a write-ahead log that are lost."""
    if number := _number_lost(log, page):
        _LOG.warning(
            "%s is damaged, by a disk or because the machine stopped, and what was stored in it "
            "after that place is lost: at least %s. Check the disk",
            log,
            counted(number, "change"),
        )


def _number_lost(log: str, page: int) -> int:
    """Return how many commits of a write-ahead log are lost, since it is damaged before them:
    SQLite leaves out what follows a frame that is not as it was written, and says nothing
    (https://www.sqlite.org/fileformat2.html#the_write_ahead_log).

    A log that is cut off cannot be told from one that was not longer, and of one that does not
    exist nothing is lost.

    Arguments:
        page: bytes of a page.
    """
    try:
        rows = (os.stat(log).st_size - _LOG_HEADER) // (_FRAME_HEADER + page)
    except FileNotFoundError:
        return 0
    if rows < 1:
        return 0
    shape = rows, _FRAME_HEADER + page
    header = np.fromfile(log, np.uint8, _LOG_HEADER)
    frames = np.memmap(log, np.uint8, "r", _LOG_HEADER, shape)
    order = "<u4" if header[3] % 2 == 0 else ">u4"  # of the words that are summed
    before = header[24:].view(">u4").astype(np.uint32)
    salts, whole = header[16:24], 0  # the number of frames before the damage
    if (_checksums(np.zeros(2, np.uint32), header[:24].view(order)) != before).any():
        salts = frames[0, 8:16]  # SQLite reads nothing
    else:
        for first in range(0, rows, _BLOCK):
            block = np.array(frames[first : first + _BLOCK])
            sums = block[:, 16:_FRAME_HEADER].copy().view(">u4").astype(np.uint32)
            words = np.delete(block, np.s_[8:_FRAME_HEADER], axis=1).view(order)
            matches = _checksums(np.vstack([before, sums[:-1]]), words) == sums
            is_valid = matches.all(axis=1) & (block[:, 8:16] == salts).all(axis=1)
            whole += int(np.cumprod(is_valid).sum())
            if not is_valid.all():
                break
            before = sums[-1]
    after = frames[whole:, :_FRAME_HEADER]
    has_salt = (after[:, 8:16] == salts).all(axis=1)
    return int((has_salt & after[:, 4:8].any(axis=1)).sum())


def _checksums(before: NDArray[np.uint32], words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the checksums of rows of words, as SQLite makes them: for each two words x and y, of
    the sums (a, b) before, a + x + b and then b + y + the new a, modulo 2³².

    Arguments:
        before: the two sums before each row; shape (..., 2).
        words: shape (..., number of words).
    """
    pairs = words.shape[-1] // 2
    of_first, of_second = [(1, 0)], [(0, 1)]  # what 1 in a sum adds to both, k pairs of 0 later
    for _ in range(pairs):
        for terms in (of_first, of_second):
            a, b = terms[-1]
            terms.append(((a + b) % 2**32, (a + 2 * b) % 2**32))
    first, second = np.array(of_first, np.uint32), np.array(of_second, np.uint32)
    sums: NDArray[np.uint32] = before @ np.stack([first[-1], second[-1]])
    sums += words[..., ::2].astype(np.uint32) @ first[:0:-1]
    return sums + words[..., 1::2].astype(np.uint32) @ second[-2::-1]


def _warn_of_networks(path: Path) -> None:
    """Warn if the file is on a file system that several machines may share."""
    if not _MOUNTS.exists():
        return
    device = path.parent.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            fields, _, kind = line.partition(" - ")
            if fields.split()[2] == number and kind.startswith(_NETWORKS):
                _LOG.warning(
                    "%s is on a file system of the kind %s: SQLite's log works there only while "
                    "all programs that use the store are on one machine, and its locks may not "
                    "work at all; use a local disk, or PostgreSQL",
                    path,
                    kind.split()[0],
                )
                return
