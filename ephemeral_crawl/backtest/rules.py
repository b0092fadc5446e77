"""Rules by which feed readers and crawlers in use decide when to fetch a feed again.

Each sets the time of the next fetch after a fetch, with the constants of its program. Rules know
nothing of a budget: whoever plays them stretches or shrinks all intervals by the same factor, so
that every rule spends the same. What a rule does after errors is that of its program, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import ClassVar

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
_LISTED = 20  # items that a feed lists at a time, where a rule reads those listed


class Rule(ABC):
    """When to fetch a feed again; one object for each feed.

    The object keeps the times of publication of all items that it has been shown.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    counts: ClassVar[float] = 0.0  # seconds before a fetch of which it counts all entries

    def __init__(self) -> None:
        self.dates: list[float] = []  # seconds, ascending
        self.errors = 0  # fetches that failed since the last one that did not

    def after(self, now: float, times: list[float]) -> float:
        """Return the time until the next fetch, seconds.

        Arguments:
            now: time of the fetch, seconds.
            times: when the items that it found were published, ascending.
        """
        self.dates += times
        self.errors = 0
        return self.interval(now, len(times))

    def after_error(self, now: float, status: int | None = None) -> float:
        """Return the time until the next fetch, seconds, after one that failed; ∞: never again.

        Arguments:
            status: HTTP status; None: there was no answer.
        """
        self.errors += 1
        return self.retry(now, status)

    def retry(self, now: float, status: int | None) -> float:
        """Return the time until the next fetch after one that failed; default: as without news."""
        return self.interval(now, 0)

    @abstractmethod
    def interval(self, now: float, number: int) -> float:
        """Return the time until the next fetch, seconds, after one that found so many items."""

    def _since(self, moment: float) -> list[float]:
        return self.dates[bisect_right(self.dates, moment) :]


class RoundRobin(Rule):
    """All feeds in turn."""

    name, about = "round robin", "all feeds in turn"

    def interval(self, now: float, number: int) -> float:
        return DAY


class Miniflux(Rule):
    """Miniflux's scheduler by entry frequency (`POLLING_SCHEDULER=entry_frequency`): a week divided
    by the entries of the last week, between five minutes and a day.

    `ScheduleNextCheck` in internal/model/feed.go, as of 2.2, with its default factor of 1. Delays
    that servers ask for do not occur in a log. A feed with three errors in a row is not polled any
    more (`POLLING_PARSING_ERROR_LIMIT`, default 3; `WithErrorLimit` in internal/storage/batch.go
    selects those of which `parsing_error_count` is smaller); before, its interval is the usual one.
    """

    name = "miniflux"
    about = "a week ÷ entries of the last week, 5 min to 1 day"
    counts = 7 * DAY

    def interval(self, now: float, number: int) -> float:
        entries = len(self._since(now - self.counts))
        return _within(self.counts / entries if entries else DAY, 5 * MINUTE, DAY)

    def retry(self, now: float, status: int | None) -> float:
        return self.interval(now, 0) if self.errors < 3 else math.inf


class CommaFeed(Rule):
    """CommaFeed's empirical interval: by the age of the last entry, and half of the mean gap
    between the listed ones, from 5 minutes to 4 hours.

    `computeEmpiricalRefreshInterval` in FeedRefreshIntervalCalculator.java, the default since 5.6,
    with an `interval` of 5 minutes and a `max-interval` of 4 hours. Before, there were other
    constants, from 6 hours to a day, used only under heavy load. After errors, by `onFetchError`: 5
    minutes twice, then one hour more after each (`errors.retries-before-backoff` of 3 and
    `errors.backoff-interval` of an hour), up to the same 4 hours.
    """

    name = "commafeed"
    about = "half of the mean gap of the listed entries, 5 min to 1 h; idle feeds up to 4 h"
    shortest, longest = 5 * MINUTE, 4 * HOUR

    def interval(self, now: float, number: int) -> float:
        if not self.dates:
            return self.longest
        idle = (now - self.dates[-1]) // DAY
        for days, parts in ((30, 1), (14, 2), (7, 4)):
            if idle >= days:
                return self.longest / parts
        dates = self.dates[-_LISTED:]
        if len(dates) < 2:
            return self.longest
        gap = (dates[-1] - dates[0]) / (len(dates) - 1)
        return _within(gap / 2, self.shortest, self.longest / 4)

    def retry(self, now: float, status: int | None) -> float:
        return _within((self.errors - 2) * HOUR, self.shortest, self.longest)


class AutoTTL(Rule):
    """FreshRSS's extension AutoTTL: the span of the entries of the last 30 days divided by their
    number, between the default of an hour and the maximum of a day.

    `getAdjustedTTL` and `calcAdjustedTTL` in the extension's stats.php, with FreshRSS's
    `ttl_default` of an hour and the extension's `MAX_TTL`. A feed that fails alone on its host
    keeps its interval (`calcBackoffTTL` in BackoffCalculator.php); up to an hour of jitter is left
    out.
    """

    name = "autottl"
    about = "span ÷ number of the entries of 30 days, 1 h to 1 day"

    def interval(self, now: float, number: int) -> float:
        recent = self._since(now - 30 * DAY)
        mean = (recent[-1] - recent[0]) / len(recent) if recent else 0.0
        return _within(mean, HOUR, DAY) if mean > 0.0 else DAY


class Aimd(Rule):
    """Additive increase, multiplicative decrease, as in feedspool: the interval begins with ten
    minutes, is halved after a fetch with news and grows by 30 minutes after one without, between an
    hour and a day.

    `update_period` of the plug-in poll_schedule_vary, with the defaults of subscriptions.py. An
    error leaves the interval as it is: `scan` schedules the next poll without asking the plug-in.
    """

    name = "aimd"
    about = "interval × 0.5 after news, + 30 min without, 1 h to 1 day"

    def __init__(self) -> None:
        super().__init__()
        self._last = 10 * MINUTE

    def interval(self, now: float, number: int) -> float:
        interval = 0.5 * self._last if number else self._last + 30 * MINUTE
        self._last = _within(interval, HOUR, DAY)
        return self._last

    def retry(self, now: float, status: int | None) -> float:
        return _within(self._last, HOUR, DAY)


class Nutch(Rule):
    """Apache Nutch's AdaptiveFetchSchedule: the interval is multiplied by 0.8 after a fetch with
    news, else by 1.4 (`dec_rate` and `inc_rate` of nutch-default.xml, as of 1.20).

    It begins with a day, rather than Nutch's 30, and is between a minute and 30 days, rather than a
    year: feeds are not pages. The shift towards the last change is left out (`sync_delta=false`),
    since it compares intervals with the clock, and here they are stretched.

    After an error, a page is tried again a day later (`setPageRetrySchedule` of
    AbstractFetchSchedule). It is gone if it answers 404 or 410 (`HttpBase`), and after three errors
    in a row (`db.fetch.retry.max`): its interval is then multiplied by 1.5, up to .9 of the longest
    (`setPageGoneSchedule`, called by CrawlDbReducer).
    """

    name = "nutch"
    about = "interval × 0.8 after news, × 1.4 without, 1 min to 30 days"

    def __init__(self) -> None:
        super().__init__()
        self._last = DAY

    def interval(self, now: float, number: int) -> float:
        self._last = _within(self._last * (0.8 if number else 1.4), MINUTE, 30 * DAY)
        return self._last

    def retry(self, now: float, status: int | None) -> float:
        if self.errors < 3 and status not in (404, 410):
            return DAY
        longer = 1.5 * self._last
        self._last = longer if longer < 30 * DAY else 0.9 * 30 * DAY
        return self._last


RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (Miniflux, CommaFeed, AutoTTL, Aimd, Nutch, RoundRobin)
}


def _within(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
