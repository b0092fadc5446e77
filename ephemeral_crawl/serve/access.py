"""Authorisation: the token, the names of this machine, and what is hidden from logs and errors."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import secrets
import stat
import sys
from pathlib import Path

from crawl_env.errors import shown
from ephemeral_crawl.live.reasons import redacted

VARIABLE = "EPHEMERAL_CRAWL_TOKEN"
_SHORTEST = 16  # characters of a token
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


class Token:
    """A secret that is not shown, and of which only a digest is kept.

    >>> token = Token("correct horse battery")
    >>> token.fits("correct horse battery"), token.fits("guess"), token
    (True, False, Token(…))
    """

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST or not text.isascii() or not text.isprintable():
            raise ValueError(
                f"the token has {len(text)} characters; give at least {_SHORTEST}, printable and "
                "ASCII, such as those of: openssl rand -hex 32"
            )
        self._digest = hashlib.sha256(text.encode()).digest()

    def __repr__(self) -> str:
        return "Token(…)"

    def fits(self, text: str) -> bool:
        """Return whether this is the token, in a time that does not depend on how much of it is."""
        given = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        return hmac.compare_digest(given, self._digest)

    def accepts(self, header: str | None) -> bool:
        """Return whether a header `Authorization` holds the token: as `Bearer TOKEN`, or as the
        password of `Basic`, for browsers."""
        scheme, _, value = (header or "").partition(" ")
        if scheme.lower() == "bearer":
            return self.fits(value.strip())
        if scheme.lower() == "basic":
            try:
                _, colon, password = base64.b64decode(value, validate=True).partition(b":")
            except (binascii.Error, ValueError):
                return False
            return bool(colon) and self.fits(password.decode("latin-1"))
        return False

    def hook(self, source: str, kind: str) -> str:
        """Return the key of the URL at which others may ping a source, and nothing else."""
        text = f"hook\0{kind}\0{source}".encode("utf-8", "surrogatepass")
        return hmac.new(self._digest, text, hashlib.sha256).hexdigest()[:40]


def find_token(file: Path | None) -> Token | None:
    """Return the token of a file, which is made if it does not exist, or of the environment.

    Raises:
        ValueError: there are two, or it is too short.
        OSError: the file cannot be read or made.
    """
    variable = os.environ.pop(VARIABLE, None)  # processes started from here do not inherit it
    if file is None:
        return None if variable is None else Token(variable.strip())
    if variable is not None:
        raise ValueError(f"there is a token in {VARIABLE} and one in {file}; give one of them")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            print(f"warning: others can read {file}; run: chmod 600 {file}", file=sys.stderr)
        with file.open(encoding="utf-8", errors="replace") as opened:
            return Token(opened.read(4096).strip())
    text = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text + "\n")
    print(f"A new token was written to {file}, which only you can read.")
    return Token(text)


def is_loopback(address: str) -> bool:
    """Return whether an address to listen on is reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::"), is_loopback("a.b")
    (True, True, False, False)
    """
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_local_name(host: str | None) -> bool:
    """Return whether a header `Host` names this machine. A page of another site whose name was made
    to point here (DNS rebinding) has another.

    >>> is_local_name("localhost:8500"), is_local_name("[::1]"), is_local_name("evil.example:8500")
    (True, True, False)
    """
    name, colon, port = (host or "").rpartition(":")
    if not (colon and port.isdecimal()):
        name = host or ""
    return name.lower() in _LOCAL


def brief(value: object) -> str:
    """Return a value as errors show it."""
    return redacted(shown(value))
