"""`python -m experiments hacker-news`: converts a recorded front page to a log of items.

In the git history of christian-fei/hn-history every version of `hn.json` is the front page of its
moment, a list of {title, url, upvotes, author, comments, link}; advertisements have no upvotes.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from tqdm import tqdm

from crawl_env import DecayCurves, ItemLog
from ephemeral_crawl.core.study import Study

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


DAY = 86_400  # seconds


@dataclass(kw_only=True)
class HackerNews(Study):
    """Converts a checkout of github.com/christian-fei/hn-history, which recorded the front page of
    Hacker News every twenty or thirty minutes, into tables for `ItemLog.from_csv`.

    An item is published when it is first seen on the page; its utility is the number of
    votes that it gained until it was last seen, and its curve the remaining fraction of these
    votes.
    """

    outputs: ClassVar[tuple[str, ...]] = ("items.csv.gz", "curves.csv.gz")

    history: Path
    """Folder of the checkout, with the complete git history."""
    min_items: int = 25
    """Leave out sites with fewer items."""
    since: str = ""
    """First day, such as 2020-11-07 (UTC); by default the day of the first snapshot."""
    until: str = ""
    """Day before which the log ends; by default the day after the last snapshot."""

    def run(self) -> None:
        self.check()
        versions = self._within(commits(self.history))
        progress = tqdm(snapshots(self.history, versions), total=len(versions), unit="snapshot")
        recording = Recording(progress)
        log = recording.log(versions[0][0] // DAY * DAY, versions[-1][0])
        rest = with_many_items(log, self.min_items)
        with self.results() as folder:
            rest.to_csv(folder / "items.csv.gz", folder / "curves.csv.gz")
        print(
            f"{len(versions)} snapshots, {recording.broken} of them unreadable; "
            f"{recording.without_votes} entries without votes (advertisements) and "
            f"{recording.already} items on the page from the start are left out, and "
            f"{len(log) - len(rest)} items of {len(log.names) - len(rest.names)} sites with fewer "
            f"than {self.min_items}.\n"
            f"{len(rest)} items of {len(rest.names)} sites; time 0 is {rest.origin}, the log covers"
            f" {rest.start:.4f} to {rest.end:.4f} hours: {self.folder / 'items.csv.gz'}, "
            f"{self.folder / 'curves.csv.gz'}"
        )

    def _within(self, versions: list[tuple[int, str]]) -> list[tuple[int, str]]:
        first, last = _day("--since", self.since, 0), _day("--until", self.until, 2**62)
        within = [version for version in versions if first <= version[0] < last]
        if len(within) < 2:
            raise ValueError(
                f"{self.history} has {len(within)} snapshots between --since and --until (of "
                f"{len(versions)} in all); at least 2 are needed"
            )
        return within


class Recording:
    """Votes of every item at every snapshot, and the numbers of entries that were left out."""

    def __init__(self, snapshots: Iterable[Snapshot | None]) -> None:
        self.broken = self.without_votes = self.already = 0
        self._site: dict[str, str] = {}
        self._seen: dict[str, list[tuple[int, int]]] = {}  # time and votes
        from_the_start: set[str] | None = None
        for snapshot in snapshots:
            if snapshot is None:
                self.broken += 1
                continue
            self.without_votes += snapshot.without_votes
            if from_the_start is None:  # their times of publication are unknown
                from_the_start = {story.item for story in snapshot.stories}
                self.already, self.start = len(from_the_start), snapshot.moment
            for story in snapshot.stories:
                if story.item not in from_the_start:
                    self._site.setdefault(story.item, story.site)
                    self._seen.setdefault(story.item, []).append((snapshot.moment, story.votes))
        if not self._seen:
            raise ValueError(
                "no new item appears after the first of these snapshots; take more snapshots"
            )

    def log(self, midnight: int, last: int) -> ItemLog:
        """Return the items, in hours since a midnight, up to the last snapshot."""
        names = list(dict.fromkeys(self._site.values()))
        place = {name: i for i, name in enumerate(names)}
        points = [recorded(np.array(history)) for history in self._seen.values()]
        sizes = [len(age) for age, _, _ in points]
        return ItemLog(
            names,
            source=[place[site] for site in self._site.values()],
            published=[(history[0][0] - midnight) / 3600 for history in self._seen.values()],
            utility=[votes for _, _, votes in points],
            start=(self.start - midnight) / 3600,
            end=np.nextafter((last - midnight) / 3600, np.inf),
            curves=DecayCurves(
                np.concatenate(([0], np.cumsum(sizes))),
                np.concatenate([age for age, _, _ in points]),
                np.concatenate([remaining for _, remaining, _ in points]),
            ),
            origin=datetime.fromtimestamp(midnight, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )


def recorded(history: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return ages (hours), remaining fraction of the votes, and votes gained, from times and votes.

    The votes gained so far are the running maximum, so that votes taken back do not count. An item
    without votes has no curve.

    >>> recorded(np.array([[0, 10], [3600, 30], [7200, 29], [10800, 50]]))
    (array([0., 1., 2., 3.]), array([1. , 0.5, 0.5, 0. ]), 40)
    """
    moments, votes = history.T
    gains = np.maximum.accumulate(votes) - votes[0]
    total = int(gains[-1])
    if not total:
        return np.zeros(0), np.zeros(0), 0
    return (moments - moments[0]) / 3600, 1 - gains / total, total


def with_many_items(log: ItemLog, least: int) -> ItemLog:
    """Return the log of the sources with at least `least` items, most active first.

    Raises:
        ValueError: no source has so many items.
    """
    counts = Counter(log.source.tolist()).most_common()
    names = [log.names[i] for i, count in counts if count >= least]
    if not names:
        raise ValueError(
            f"no site has {least} items, the most active one {counts[0][1]}; give a smaller "
            "--min-items"
        )
    return log.select(names)


def _day(option: str, text: str, default: int) -> int:
    if not text:
        return default
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise ValueError(f"{option} is {text!r}; give a day such as 2020-11-07") from None
