"""A journal in a PostgreSQL database, which several machines can share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from crawl_env.errors import shown
from crawl_env.extras import missing
from ephemeral_crawl.live.errors import StoreLocked
from ephemeral_crawl.live.journal.base import PATIENCE, VERSION, SqlJournal

try:
    import psycopg
    from psycopg import sql
except ImportError as error:  # pragma: no cover
    raise ImportError(missing("psycopg", "a scheduler in PostgreSQL")) from error

SCHEMA = "ephemeral_crawl"  # unless the address names another
_TABLES = ("journal", "snapshot", "version")
_NAMED = re.compile(rf"(FROM|INTO|TABLE|UPDATE) ({'|'.join(_TABLES)})\b")  # in statements
_CREATE = (
    "CREATE TABLE version (version integer NOT NULL)",
    "CREATE TABLE journal (number bigint PRIMARY KEY, event text NOT NULL, checksum bigint)",
    "CREATE TABLE snapshot (number bigint NOT NULL, part integer NOT NULL, last integer NOT NULL, "
    "state bytea NOT NULL, checksum bigint, PRIMARY KEY (number, part))",
    f"INSERT INTO version (version) VALUES ({VERSION})",
)
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)
# A machine that vanishes is noticed within half a minute: by us, and by the server, for which
# others would wait if it kept their turn. The address can say otherwise.
_CONNECTION: dict[str, Any] = {
    "application_name": "ephemeral-crawl",
    "client_encoding": "utf8",  # with SQL_ASCII text would be given as bytes
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # ms
}
_SESSION = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)
_PATIENCE = "SET {} lock_timeout = '{:.0f}ms'"
_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between attempts to connect

Result = TypeVar("Result")


class PostgresJournal(SqlJournal):
    """A journal in a schema of a PostgreSQL database.

    A commit is as durable as the server makes it; by default it survives a power failure. When the
    server is restarted, the connection is made again; a change during which it was lost may or may
    not have been stored, and a `ConnectionError` says so. A pooler may give each transaction
    another session of the server, so nothing relies on what is set for a session.

    Arguments:
        address: "postgresql://user@host:port/database?schema=name", with the parameters of libpq;
            the password is better in a file (`passfile`) or in the environment.
        patience: seconds for which it waits for another process that changes the tables.
        new: called with the name of the store before it is made.

    Raises:
        StoreLocked: another process makes or changes the tables.
        ConnectionError: the server cannot be reached, or refuses.
        ValueError: the address is wrong, or the schema is not one of a scheduler.
    """

    def __init__(
        self,
        address: str,
        *,
        patience: float = PATIENCE,
        new: Callable[[str], object] = lambda name: None,
    ) -> None:
        self._full_address, self._patience, self._new = address, patience, new
        self._address, self._schema = _split_address(address)
        parameters = psycopg.conninfo.conninfo_to_dict(self._address)
        # Nothing else of the address is shown: it may hold a password.
        self.name = f"postgresql://{parameters.get('host', '')}/{parameters.get('dbname', '')}"
        self._closed = False
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        try:
            self._connect()
            self._prepare()
        except psycopg.errors.LockNotAvailable:
            self.close()
            raise StoreLocked(self.name, patience) from None
        except psycopg.Error as error:
            self.close()
            raise _unreachable(self.name, error) from None
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------------------- connection

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        parameters = {**_CONNECTION, **psycopg.conninfo.conninfo_to_dict(self._address)}
        connection = psycopg.connect(**parameters, autocommit=True)
        (session,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (None,)
        lock = _in_schema("LOCK TABLE journal IN EXCLUSIVE MODE", self._schema)
        if session == connection.info.backend_pid:
            connection.execute(f"{_SESSION}; {self._limit('SESSION')}".encode())
            self._start = b"BEGIN; " + lock
        else:  # a pooler, whose sessions others use, too
            connection.prepare_threshold = None
            self._start = f"BEGIN; {self._limit('LOCAL')}; ".encode() + lock
        self._connection = connection
        return connection

    def _use(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return the connection, a new one after a fork or if the last one was lost."""
        if self._closed:
            raise ValueError(f"the scheduler of {self.name} is closed; open it again")
        if self._connection is None or self._connection.closed:
            return self._connect()
        return self._connection

    def _limit(self, scope: str) -> str:
        """Return the statement that limits how long statements wait for locks of others."""
        return _PATIENCE.format(scope, 1000.0 * self._patience)

    def _patiently(self, attempt: Callable[[], Result]) -> Result:
        """Return the result of something that changes nothing, also while a server restarts."""
        end, pause = time.monotonic() + PATIENCE, _PAUSE
        while True:
            try:
                return attempt()
            except psycopg.errors.LockNotAvailable:
                raise
            except psycopg.Error as error:
                # A server that is there refuses.
                is_open = self._connection is not None and not self._connection.closed
                if is_open or not isinstance(error, _LOST) or time.monotonic() + pause > end:
                    raise _unreachable(self.name, error) from None
                time.sleep(pause)
                pause = min(2.0 * pause, _LONGEST_PAUSE)

    # ---------------------------------------------------------------------------- tables

    def _prepare(self) -> None:
        if self._has_tables():
            self.check_writable()
            return
        connection = self._use()
        with connection.transaction():
            connection.execute(self._limit("LOCAL").encode())
            # Of several processes that start at once, one makes the tables.
            connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [self._schema]
            )
            if self._has_tables():
                return
            self._new(self.name)
            if not self.rows("SELECT 1 FROM pg_namespace WHERE nspname = ?", [self._schema]):
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
            for statement in _CREATE:
                self.rows(statement)

    def _has_tables(self) -> bool:
        """Return whether there are tables, of the version that this program reads.

        Tables of others are refused: their triggers, rules, checks, defaults, types and indices of
        expressions would be run with our rights.
        """
        relations = self.rows(
            "SELECT relname, relkind::text, relhastriggers OR relhasrules OR relrowsecurity "
            "OR relchecks > 0 OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid "
            "AND attnum > 0 AND (atthasdef OR atttypid >= 10000)) OR EXISTS (SELECT FROM pg_index "
            "WHERE indrelid = c.oid AND (indexprs IS NOT NULL OR indpred IS NOT NULL)) "
            "FROM pg_class c "
            "WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = ?) "
            "AND relkind <> 'i' AND relkind <> 't'",
            [self._schema],
        )
        if not relations:
            return False
        tables = {(name, "r", False) for name in _TABLES}
        versions = self.rows("SELECT version FROM version") if set(relations) == tables else []
        if len(versions) != 1 or not isinstance(versions[0][0], int):
            raise ValueError(
                f"the schema {self._schema} of {self.name} is not one of a scheduler; name another "
                "with ?schema= in the address"
            )
        self.check_version(versions[0][0])
        return True

    # ---------------------------------------------------------------------------- journal

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        try:
            connection = self._patiently(self._begin)
        except psycopg.errors.LockNotAvailable:
            raise StoreLocked(self.name, self._patience) from None
        try:
            yield
            connection.execute("COMMIT")
        except BaseException as error:
            if not connection.closed:
                try:
                    connection.execute("ROLLBACK")
                except psycopg.Error:
                    connection.close()
                else:
                    if isinstance(error, psycopg.Error):  # the server is there, and refuses
                        raise _unreachable(self.name, error) from None
            if not isinstance(error, psycopg.Error):
                raise
            raise ConnectionError(
                f"the connection to {self.name} was lost: the change may or may not have been "
                f"stored ({_line(error)}). Make it again: an outcome of a lease is not recorded "
                "twice, and leases that nobody received expire"
            ) from None

    def _begin(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = self._use()
        try:
            # Others can read, but not write; parameters would need a round trip each.
            connection.execute(self._start)
        except psycopg.Error:  # or the transaction would stay open, and refuse everything
            if not connection.closed:
                connection.execute("ROLLBACK")
            raise
        except BaseException:  # an interrupt, perhaps in the middle of an answer
            connection.close()
            raise
        return connection

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        query = _in_schema(statement, self._schema)

        def attempt() -> list[tuple[Any, ...]]:
            cursor = self._use().execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []

        connection = self._connection
        try:
            if connection and not connection.closed and connection.info.transaction_status:
                return attempt()  # part of a transaction, which is not made again
            return self._patiently(attempt)
        except psycopg.errors.LockNotAvailable:
            raise StoreLocked(self.name, self._patience) from None

    def again(self) -> Self:
        return type(self)(self._full_address, patience=self._patience)

    def place(self) -> object:
        # One server has many addresses; no two start within a microsecond.
        (server,) = self.rows("SELECT pg_postmaster_start_time()::text, current_database()")
        return *server, self._schema

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def close(self) -> None:
        self._closed = True
        self.disconnect()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self.close()


@lru_cache
def _in_schema(statement: str, schema: str) -> bytes:
    """Return a statement as psycopg takes it, with the names of the tables in full."""
    named = _NAMED.sub(rf'\1 "{schema}".\2', statement)
    return named.replace("?", "%s").encode()  # no statement has another ? or a %


def _split_address(address: str) -> tuple[str, str]:
    """Return the address as libpq takes it, and the schema."""
    try:
        plain, _, query = address.partition("?")
        parameters = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        schema = dict(parameters).get("schema", SCHEMA)
        rest = [(name, value) for name, value in parameters if name != "schema"]
        plain += "?" + urlencode(rest, quote_via=quote) if rest else ""
        psycopg.conninfo.conninfo_to_dict(plain)
    except (ValueError, psycopg.Error):
        # The message of libpq repeats the address.
        raise ValueError(
            "the address of the PostgreSQL database cannot be read; write it as "
            "postgresql://user@host:5432/database"
        ) from None
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema) or schema.startswith("pg_"):
        raise ValueError(f"schema is {shown(schema)}; use lower-case letters, digits and _")
    return plain, schema


def _unreachable(name: str, error: Exception) -> ConnectionError:
    read_only = isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
    advice = "; name the server that takes writes, or all with ?target_session_attrs=read-write"
    return ConnectionError(f"{name} cannot be used: {_line(error)}{advice * read_only}")


def _line(error: Exception) -> str:
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    # Without the statement.
    return " ".join((message or str(error)).split()) or type(error).__name__
