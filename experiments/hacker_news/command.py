"""`python -m experiments hacker-news`: converts a recorded front page to a log of items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import numpy as np
from tqdm import tqdm

from crawl_env import DecayCurves, ItemLog
from ephemeral_crawl.core.study import Study
from experiments.hacker_news import history
from experiments.hacker_news.history import Snapshot

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
        versions = self._within(history.commits(self.history))
        progress = tqdm(
            history.snapshots(self.history, versions), total=len(versions), unit="snapshot"
        )
        recording = Recording(progress)
        log = recording.log(versions[0][0] // DAY * DAY, versions[-1][0])
        kept = with_many_items(log, self.min_items)
        with self.results() as folder:
            kept.to_csv(folder / "items.csv.gz", folder / "curves.csv.gz")
        print(
            f"{len(versions)} snapshots, {recording.broken} of them unreadable; "
            f"{recording.without_votes} entries without votes (advertisements) and "
            f"{recording.already} items on the page from the start are left out, and "
            f"{len(log) - len(kept)} items of {len(log.names) - len(kept.names)} sites with fewer "
            f"than {self.min_items}.\n"
            f"{len(kept)} items of {len(kept.names)} sites; time 0 is {kept.origin}, the log covers"
            f" {kept.start:.4f} to {kept.end:.4f} hours: {self.folder / 'items.csv.gz'}, "
            f"{self.folder / 'curves.csv.gz'}"
        )

    def _within(self, versions: list[tuple[int, str]]) -> list[tuple[int, str]]:
        first, last = _day("--since", self.since, 0), _day("--until", self.until, 2**62)
        found = [version for version in versions if first <= version[0] < last]
        if len(found) < 2:
            raise ValueError(
                f"{self.history} has {len(found)} snapshots between --since and --until (of "
                f"{len(versions)} in all); at least 2 are needed"
            )
        return found


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
        points = [recorded(np.array(seen)) for seen in self._seen.values()]
        sizes = [len(age) for age, _, _ in points]
        return ItemLog(
            names,
            source=[place[site] for site in self._site.values()],
            published=[(seen[0][0] - midnight) / 3600 for seen in self._seen.values()],
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


def recorded(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return ages (hours), remaining fraction of the votes, and votes gained, from times and votes.

    The votes gained so far are the running maximum, so that votes taken back do not count. An item
    without votes has no curve.

    >>> recorded(np.array([[0, 10], [3600, 30], [7200, 29], [10800, 50]]))
    (array([0., 1., 2., 3.]), array([1. , 0.5, 0.5, 0. ]), 40)
    """
    moments, votes = seen.T
    gained = np.maximum.accumulate(votes) - votes[0]
    total = int(gained[-1])
    if not total:
        return np.zeros(0), np.zeros(0), 0
    return (moments - moments[0]) / 3600, 1 - gained / total, total


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
