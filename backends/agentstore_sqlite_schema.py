"""The SQLite file: its layout, numbered migrations, and whether a file is ours.

A message's rowid is `session.id << 32 | seq`: one session's messages lie together, in order, and need no other index
for reads. A session row whose `hash` is NULL is linked to no key: it expired and was begun anew, or is a restore
that is not finished; `purge` removes it once its `expires_at` has passed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from urllib.parse import quote

from agentstore.backend import Readiness
from agentstore.errors import ConfigurationError, UnavailableError

APPLICATION_ID = int.from_bytes(b"AGST", "big")

# Each entry leads from the version before it; a released one is never changed.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE session (
            id INTEGER PRIMARY KEY,
            hash BLOB UNIQUE,
            namespace TEXT NOT NULL,
            source TEXT NOT NULL,
            session TEXT NOT NULL,
            last_seq INTEGER NOT NULL DEFAULT 0,
            count INTEGER NOT NULL DEFAULT 0,
            bytes INTEGER NOT NULL DEFAULT 0,
            calls INTEGER NOT NULL DEFAULT 0,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            minute INTEGER NOT NULL,
            expires_at INTEGER
        )
        """,
        """
        CREATE INDEX session_by_activity ON session (namespace, minute DESC, source, session) WHERE hash IS NOT NULL
        """,
        "CREATE INDEX session_unlinked ON session (namespace, source, session) WHERE hash IS NULL",
        """
        CREATE TABLE message (
            id INTEGER PRIMARY KEY,
            id_hash BLOB NOT NULL,
            digest BLOB NOT NULL,
            created_at INTEGER NOT NULL,
            format TEXT NOT NULL,
            payload TEXT NOT NULL
        )
        """,
        "CREATE UNIQUE INDEX message_by_id ON message (id >> 32, id_hash)",
        """
        CREATE TABLE answer (
            session INTEGER NOT NULL,
            slot INTEGER NOT NULL,
            token BLOB NOT NULL,
            answer BLOB NOT NULL,
            PRIMARY KEY (session, slot)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE snapshot (
            session INTEGER PRIMARY KEY,
            version INTEGER NOT NULL,
            format TEXT NOT NULL,
            payload TEXT NOT NULL
        )
        """,
        "CREATE TABLE metadata (session INTEGER PRIMARY KEY, payload TEXT NOT NULL)",
    ),
    (  # the answers to the last appends move into the session's row; the few that were remembered are given up
        "ALTER TABLE session ADD COLUMN answers BLOB NOT NULL DEFAULT x''",
        "UPDATE session SET calls = 0",
        "DROP TABLE answer",
        """
        CREATE TABLE answer (
            session INTEGER NOT NULL,
            slot INTEGER NOT NULL,
            seqs BLOB NOT NULL,
            PRIMARY KEY (session, slot)
        ) WITHOUT ROWID
        """,
    ),
)


def connect(path: str, timeout: float, *pragmas: str) -> sqlite3.Connection:
    """A connection to a file that is set up, in autocommit mode; a locked file is waited for `timeout` seconds."""
    connection = _connect(path, "rw", timeout, *pragmas)
    if _readiness(connection, path) != "ready":
        connection.close()
        raise ConfigurationError(f"{path} was replaced by a file that is not set up: open the store anew")
    return connection


def identify(path: str) -> object:
    """What tells the file at the path from another one that may take its place; `None`: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def inspect(path: str, timeout: float) -> Readiness:
    """Whether the file has our schema; changes nothing. Raises `ConfigurationError` for one not ours, or newer."""
    if os.path.isdir(path):
        raise ConfigurationError(f"{path} is a folder: a SQLite store is a file")
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return "absent"
    # Read only: a connection that may write would move another application's log into its file when it closes. And by
    # SQLite alone: to open and close the file beside it would drop the process' locks (howtocorrupt.html, section 2.2).
    with closing(_connect(path, "ro", timeout)) as connection:
        connection.execute("BEGIN")  # one view: another process may be setting up just now
        return _readiness(connection, path)


def set_up(path: str, timeout: float) -> None:
    """Create the file or migrate it, in one transaction; safe when many processes do it at once."""
    if inspect(path, timeout) == "ready":
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with closing(_connect(path, "rwc", timeout, "page_size = 8192")) as connection:
        _use_wal(connection, timeout)
        connection.execute("BEGIN IMMEDIATE")
        if _readiness(connection, path) != "ready":
            for statement in [line for migration in MIGRATIONS[_version(connection) :] for line in migration]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")


def _connect(path: str, mode: str, timeout: float, *pragmas: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode={mode}", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _readiness(connection: sqlite3.Connection, path: str) -> Readiness:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    version = _version(connection)
    if application != APPLICATION_ID:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or version or tables:
            raise ConfigurationError(f"{path} is a SQLite file of another application; it was left untouched")
        return "absent"
    if version > len(MIGRATIONS):
        raise ConfigurationError(
            f"{path} has schema version {version}, newer than {len(MIGRATIONS)}: upgrade agentstore to use it"
        )
    return "ready" if version == len(MIGRATIONS) else "outdated"


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _use_wal(connection: sqlite3.Connection, timeout: float) -> None:
    # The switch needs the file alone, and SQLite does not wait for that itself.
    deadline = time.monotonic() + timeout
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            if time.monotonic() > deadline:
                raise UnavailableError(f"the SQLite file stayed locked for {timeout:g} s during set-up") from error
            time.sleep(0.01)
    if mode != "wal":
        raise ConfigurationError("the SQLite file's file system has no write-ahead log: use a local disk")
