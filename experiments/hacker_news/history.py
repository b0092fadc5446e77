"""The git history of christian-fei/hn-history: every version of `hn.json` is the front page of its
moment, a list of {title, url, upvotes, author, comments, link}; advertisements have no upvotes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

FILE = "hn.json"
HOME = "news.ycombinator.com"  # of questions and other items without a link to elsewhere


class Story(NamedTuple):
    """An item in a snapshot."""

    item: str  # address on Hacker News
    site: str
    votes: int


class Snapshot(NamedTuple):
    """The front page at one time."""

    moment: int  # seconds since 1970, UTC
    stories: Sequence[Story]
    without_votes: int  # advertisements and incomplete entries


def commits(history: Path) -> list[tuple[int, str]]:
    """Return moment and name of every version of the front page, oldest first.

    Raises:
        ValueError: `history` is not a git checkout with this file.
    """
    words = ["git", "-C", str(history), "log", "--format=%ct %H", "--", FILE]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ValueError("git is not installed; it is needed to read the history") from None
    if answer.returncode or not answer.stdout:
        raise ValueError(
            f"{history} is not a git checkout with a history of {FILE}; make one with "
            "`git clone https://github.com/christian-fei/hn-history`"
        )
    pairs = (line.split() for line in answer.stdout.splitlines())
    return sorted((int(moment), name) for moment, name in pairs)


def snapshots(history: Path, versions: Sequence[tuple[int, str]]) -> Iterator[Snapshot | None]:
    """Read the versions one after the other; None for a version that is not a list of entries."""
    words = ["git", "-C", str(history), "cat-file", "--batch"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as git:
        assert git.stdin is not None
        assert git.stdout is not None
        for moment, name in versions:
            git.stdin.write(f"{name}:{FILE}\n".encode())
            git.stdin.flush()
            yield parse(moment, _answer(git.stdout))


def parse(moment: int, page: bytes) -> Snapshot | None:
    """Return the snapshot in a version of the file, or None if it is not a list of entries."""
    try:
        entries = json.loads(page)
    except ValueError:  # cut off, or not text
        return None
    if not isinstance(entries, list):
        return None
    stories = [story for entry in entries if (story := _story(entry)) is not None]
    return Snapshot(moment, stories, len(entries) - len(stories))


def site_of(address: str) -> str:
    """Return the site of an address.

    >>> site_of("https://www.bbc.com/news"), site_of("item?id=1")
    ('bbc.com', 'news.ycombinator.com')
    """
    try:
        host = urlsplit(address).hostname or HOME
    except ValueError:  # not an address
        return HOME
    return host.removeprefix("www.")


def _story(entry: Any) -> Story | None:
    if not isinstance(entry, dict):
        return None
    link, votes = entry.get("link"), entry.get("upvotes")
    if not isinstance(link, str) or not isinstance(votes, int):
        return None
    return Story(link, site_of(str(entry.get("url", ""))), votes)


def _answer(output: IO[bytes]) -> bytes:
    """Read one answer of `git cat-file --batch`: a line that ends in the size, and the content."""
    size = output.readline().split()[-1]
    return output.read(int(size) + 1) if size.isdigit() else b""
