"""Databases for tests: SQLite files, and a PostgreSQL server that the tests start themselves."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

_FOLDERS = (
    *os.environ.get("PATH", "").split(os.pathsep),
    *Path("/usr/lib/postgresql").glob("*/bin"),
)
NO_SERVER = "PostgreSQL's server is not installed (Debian: apt-get install postgresql)"


@dataclass(frozen=True)
class Store:
    """A database, made by a scheduler that is given its address."""

    address: str
    file: Path | None = None  # of SQLite

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement beside the scheduler, and return the rows it gives."""
        if self.file is not None:
            with sqlite3.connect(self.file) as connection:
                rows = connection.execute(statement).fetchall()
            connection.close()
            return rows
        address, _, schema = self.address.partition("&schema=")
        with psycopg.connect(address, options=f"-csearch_path={schema}") as server:
            cursor = server.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@dataclass
class Server:
    """A PostgreSQL server in a folder of its own, reached by a socket there."""

    folder: Path
    number: int = 0  # of schemas handed out

    def new(self) -> Store:
        """Return an empty store."""
        self.number += 1
        where = f"host={quote(str(self.folder), safe='')}&user=postgres&schema=s{self.number}"
        return Store(f"postgresql:///postgres?{where}")

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=30"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", self._data, "-o", options, "-l", log, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop")

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        path = _program(program)
        assert path is not None
        subprocess.run(
            [path, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            **_account(),
        )


def servers() -> Iterator[Server | None]:
    """Yield a running server, None where PostgreSQL is not installed; for a fixture."""
    if _program("initdb") is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: the name of a socket has 107 characters
    try:
        account = _account()
        if account:
            shutil.chown(folder, account["user"])
        server = Server(folder)
        server._run("initdb", "-D", server._data, "-U", "postgres", "-A", "trust", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(map(str, _FOLDERS)))


def _account() -> dict[str, Any]:
    """Return the account that runs the server, which refuses to be run by root."""
    return {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}


def reported(store: Store) -> dict[int, int]:
    """Return the number of items of each lease whose report is in the journal."""
    counts: dict[int, int] = {}
    for (text,) in store.run("SELECT event FROM journal ORDER BY number"):
        event = json.loads(text)
        if event["kind"] == "record":
            for lease, items in zip(event["lease"], event["items"], strict=True):
                assert lease not in counts, "a report counts twice"
                counts[lease] = items
    return counts
