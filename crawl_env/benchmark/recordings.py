"""Recorded logs as tasks: one part to fit and to train on, and another one that is played.

The files are not part of the package: users bring them, in a folder for each recording below the
folder that the environment variable `EPHEMERAL_CRAWL_RECORDINGS` names. What was read is compared
with the SHA-256 of the protocol.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from crawl_env.fleet.sources import Sources
from crawl_env.log.changelogs import DOCUMENTATION, debian_changelogs
from crawl_env.log.item_log import ItemLog

FOLDER = "EPHEMERAL_CRAWL_RECORDINGS"  # the environment variable
ITEMS, CURVES = "items.csv.gz", "curves.csv.gz"
RECORDED = "recorded"  # stands for the fleet and the arrivals in the arguments of a task


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recorded log and how it is divided.

    Attributes:
        name: of its folder, with `items.csv.gz` and `curves.csv.gz`; see `ItemLog.from_csv`.
        digest: the SHA-256 that `ItemLog.digest` must have. "": the log is that of the Debian
            packages of this machine (`debian_changelogs`), whose digest every result states.
        start, split, end: the two parts, [start, split) and [split, end): times of the log, or
            ISO 8601 time stamps.
        period: length of a step, in the unit of the log.
        decay_rate: μ of all sources, 1 / unit of time, of the fitted fleet and of items without a
            recorded curve.
        least_items: sources with fewer items in the first part are left out of both.
    """

    name: str
    digest: str = ""
    start: float | str
    split: float | str
    end: float | str
    period: float = 1.0
    decay_rate: float
    least_items: int = 5

    def log(self) -> ItemLog:
        """Return the whole log.

        Raises:
            ValueError: it is not there, or it is another log.
        """
        return _read(self, os.environ.get(FOLDER, ""))

    def parts(self) -> tuple[ItemLog, ItemLog]:
        """Return the part to fit and to train on, and the part that is played, of the sources with
        enough items and utility in the first one."""
        return _parts(self, os.environ.get(FOLDER, ""))

    def fleet(self, fitted: bool) -> Sources:
        """Return the sources.

        Arguments:
            fitted: with the rates and mean utilities that they have in the first part; otherwise
                all have the mean of the fleet, so that they say nothing about single sources.
        """
        past, _ = self.parts()
        utility = np.bincount(past.source, past.utility, len(past.names)) / past.counts
        rate = past.counts / past.span
        if not fitted:
            rate, utility = np.full_like(rate, rate.mean()), np.full_like(utility, utility.mean())
        return Sources(rate, utility, self.decay_rate, period=self.period, names=past.names)


@cache
def _read(recording: Recording, folder: str) -> ItemLog:
    if not recording.digest:
        return debian_changelogs(DOCUMENTATION)
    place = Path(folder) / recording.name
    if not folder or not (place / ITEMS).exists():
        raise ValueError(
            f"the recording {recording.name!r} is not part of the package; set {FOLDER} to a "
            f"folder with {recording.name}/{ITEMS} and {recording.name}/{CURVES}, which "
            "docs/researchers/benchmark.md describes"
        )
    log = ItemLog.from_csv(place / ITEMS, place / CURVES)
    if (digest := log.digest()) != recording.digest:
        raise ValueError(
            f"{place} has another log than the protocol: its SHA-256 is {digest}, and that of "
            f"{recording.name!r} is {recording.digest}; take the files that the protocol names, or "
            "write a protocol of your own for these"
        )
    return log


@cache
def _parts(recording: Recording, folder: str) -> tuple[ItemLog, ItemLog]:
    log = _read(recording, folder)
    past = log.covering(recording.start, recording.split)
    remainder = log.covering(recording.split, recording.end)
    utility = np.bincount(past.source, past.utility, len(past.names))
    sources = np.flatnonzero((past.counts >= recording.least_items) & (utility > 0))
    if not sources.size:
        raise ValueError(
            f"no source of {recording.name!r} has {recording.least_items} items in the first part"
        )
    names = [log.names[i] for i in sources]
    return past.select(names), remainder.select(names)
