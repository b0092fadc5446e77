"""Why a source is due when it is, in numbers and in sentences."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

from ephemeral_crawl.live import hosts as politeness
from ephemeral_crawl.live import learning, life, price
from ephemeral_crawl.live.columns import HOST_PAUSED, LOOKS, NEVER, PAUSED, STOPPED, Sources
from ephemeral_crawl.live.fitting import delays
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.reasons import CAUSES, LEARNT, UNREACHED
from ephemeral_crawl.live.state import State

_RESUME = "ephemeral-crawl crawl --resume"
MISLEADING = 0.05  # precision below which pings say hardly anything
PROBABLY = 0.8  # probability from which on a source is called dead


@dataclass(frozen=True)
class Explanation:
    """What is known about a source, and what follows from it.

    Rates are per hour, durations in seconds, and times in seconds since 1970; None if there is no
    such time. Errors are standard errors.
    """

    source: str
    rate: float  # items per hour, with and without pings
    rate_error: float
    worth: float  # mean worth of an item at publication, without the weight of the source
    worth_error: float
    half_life: float
    half_life_error: float  # 0 if it was declared
    precision: float | None  # of its pings; None if it was never pinged
    recall: float | None  # fraction of its items that pings announce; likewise
    signal: str | None  # kind of its last ping
    pinged_at: float | None  # time of it
    signal_delay: float | None  # mean time from an item to such a ping, over all sources
    silent_rate: float  # items per hour that no ping announces
    guessed: bool  # whether the rate rests on the other sources alone: see `learning.is_guess`
    fetched_at: float | None
    answering: float  # probability that a fetch would be answered now
    answering_soon: float  # mean of it over the next day, which forecasts use
    dead: float  # probability that it answers nothing for a month; 0 unless its last fetch failed
    value: float  # expected worth that a fetch would collect now
    index: float  # what a fetch is worth per budget unit, compared with waiting
    price: float  # of a budget unit, by its tag: a source is due when its index reaches it
    due_at: float | None
    interval: float | None  # between two fetches, if it answers and no ping comes
    reason: str  # what determines when it is due
    due_after_ping: float | None  # when it would be due if it were pinged now
    interval_at_half_price: float | None
    max_interval: float | None
    interval_without: float | None  # the maximum interval
    max_interval_costs: float  # worth per hour that the fetches for its sake would bring elsewhere
    leased: bool
    paused: bool
    failures: int  # consecutive
    failed_at: float | None = None  # last time at which a lease came to nothing, if it is known
    failure: str = ""  # and why; "" if it is not known
    cause: str = ""  # of its last failure, one of `reasons.CAUSES`; "" if its last fetch succeeded
    advice: str = ""  # what to do if it is probably dead, or paused; "" otherwise
    renamed_at: float | None = None  # when it was renamed, as after a permanent redirect
    renamed_from: str = ""  # and its name before; "" if it never was
    weight: float = 1.0  # by which the worth of its items is multiplied
    tag: str | None = None
    binds: str = ""  # which budget of its tag binds: "most", "least"; "": that of all sources alone
    multiplier: float = 0.0  # of that budget of its tag: its price less that of the budget
    announces: bool = False  # whether its items are pings of other sources, as of a sitemap
    spends: float = 0.0  # budget units per hour that it takes at this price, if it answers
    brings: float = 0.0  # worth per hour that this brings

    def __str__(self) -> str:
        items = "items per hour, worth"
        if self.announces:
            items = "pings of other sources per hour, which bring fetches forward that then collect"
        lines = [
            f"{self.source}: {_number(self.rate)} ± {_number(self.rate_error)} {items} "
            f"{_number(self.worth)} ± {_number(self.worth_error)} "
            f"{'more each, less the price' if self.announces else 'each when published'}; the "
            f"worth halves in {duration(self.half_life)}"
            + (f" ± {duration(self.half_life_error)}." if self.half_life_error else ".")
            + (f" It counts {_number(self.weight)} times." if self.weight != 1.0 else "")
            + (" This is a guess from the other sources." if self.guessed else ""),
            self._last_fetch() + self._answering(),
            f"A fetch now would collect {_number(self.value)}; its index is {_number(self.index)}, "
            f"and the price of a budget unit is {_number(self.price)}." + self._bound(),
            f"Due: {'never' if self.due_at is None else time_text(self.due_at)}, {self.reason}.",
        ]
        if self.advice:
            lines.append(f"What to do: {self.advice}.")
        if self.renamed_at is not None:
            lines.append(f"It moved here from {self.renamed_from} at {time_text(self.renamed_at)}.")
        if self.paused:
            return "\n".join(lines)
        if self.interval is not None and self.interval_at_half_price is not None:
            lines.append(
                f"At this price it {'would be' if self.failures else 'is'} fetched every "
                f"{duration(self.interval)}{' if it answered' if self.failures else ''}; at half "
                f"of the price it would be every {duration(self.interval_at_half_price)}."
                + (
                    f" That takes {_number(self.spends)} budget units an hour, and brings pings "
                    f"worth {_number(self.brings)}."
                    if self.announces
                    else ""
                )
            )
        if self.max_interval is not None and self.max_interval_costs > 0.0:
            other = self.interval_without
            lines.append(
                f"That it is fetched at least once in {duration(self.max_interval)} costs "
                f"{_number(self.max_interval_costs)} of worth per hour, which these fetches would "
                "bring at other sources; without, it would be "
                + ("never fetched." if other is None else f"fetched every {duration(other)}.")
            )
        if self.precision is not None and self.pinged_at is not None:
            when = "never" if self.due_after_ping is None else time_text(self.due_after_ping)
            lines.append(
                f"{self.precision:.0%} of its pings announce an item (the last ping was of the "
                f"kind {self.signal}, at {time_text(self.pinged_at)}); "
                f"{_number(self.silent_rate)} items per hour, {1.0 - (self.recall or 0.0):.0%} of "
                "all, come without a ping. "
                f"With a ping now, it would be due: {when}."
                + (" Its pings mislead, and hardly count." if self.misleading else "")
            )
        return "\n".join(lines)

    def _bound(self) -> str:
        """Say which budget of its tag binds."""
        if not self.binds:
            return ""
        bound, more = ("maximum", "more") if self.binds == "most" else ("minimum", "less")
        return (
            f" The {bound} of its tag {self.tag} binds: the price is "
            f"{_number(abs(self.multiplier))} {more} than that of the whole budget."
        )

    def _last_fetch(self) -> str:
        """Say when it was fetched, and what came in between."""
        text = "It has not been fetched yet"
        if self.fetched_at is not None:
            how = "successfully " if self.failures else ""
            text = f"It was last fetched {how}at {time_text(self.fetched_at)}"
        elif self.failures:
            text = "It has never been fetched successfully"
        if self.failures:
            last = "fetch" if self.failures == 1 else f"{self.failures} fetches"
            text += f"; its last {last} failed"
        if self.failed_at is not None:
            # Failed, or passed over after it had failed.
            text += "; the last attempt was" if self.failures else "; it was passed over"
            text += f" at {time_text(self.failed_at)}"
        if self.failure:
            text += f": {self.failure}"
        return text + "."

    def _answering(self) -> str:
        """Say whether it is expected to answer."""
        if not self.failures:
            return ""
        text = f" A fetch is answered now with a probability of {self.answering:.0%}."
        if self.probably_dead:
            text += (
                " It is probably dead: with a probability of "
                f"{self.dead:.0%} it does not answer for another month."
            )
        return text

    @property
    def misleading(self) -> bool:
        """Whether its pings say hardly anything."""
        return self.precision is not None and self.precision < MISLEADING

    @property
    def probably_dead(self) -> bool:
        """Whether it will hardly answer again."""
        return self.dead >= PROBABLY


def cause_of_failure(state: State, i: int) -> str:
    """Return the cause of the last failure of a source, one of `CAUSES`; "" if its last fetch was
    answered, or there was none."""
    if not state.sources.failures[i]:
        return ""
    category, reason = LEARNT[state.sources.cause[i]], state.reasons.of(i)
    cause = reason.cause if reason else ""
    return category if not cause or (category == "network" and cause in UNREACHED) else cause


def advice_on(state: State, i: int) -> str:
    """Return what to do about a source that is probably dead, gone or paused; "" about others."""
    cause, advice = cause_of_failure(state, i), []
    if cause == "gone" or life.dead(state.sources, state.shared, i) >= PROBABLY:
        advice.append(CAUSES[cause].advice)
    if state.sources.marks[i] & PAUSED:
        name = shlex.quote(state.names[i] or "")
        advice.append(f"to fetch it again, run `{_RESUME} {name}`, or send POST /v1/resume")
    return "; ".join(advice)


def next_due(state: State, i: int, now: float) -> tuple[float, str]:
    """Return when a source is due at the present price, infinite if never, and what decides it."""
    return _next_due(state, i, state.sources[i : i + 1], now)


def _next_due(state: State, row: int, sources: Sources, now: float) -> tuple[float, str]:
    """Return `next_due` of a row of `sources`, which may differ from that of the state."""
    i = 0
    if marks := int(sources.marks[i]) & STOPPED:
        what = "it is" if marks & PAUSED else "its host is" if marks & HOST_PAUSED else "its tag is"
        return math.inf, f"since {what} paused"
    value = state.price_at(now)
    free = price.due_at(sources, state.shared, i, value, now)
    reason = "when its index reaches the price"
    attempt = life.tried_at(sources, i)
    if attempt == NEVER:
        free, reason = now, "since it has not been fetched yet"
    else:
        longest = price.longest_interval(sources, state.shared, i)
        if attempt + longest < free:
            free, reason = attempt + longest, "by its maximum interval"
        interval = price.exploration_interval(sources, state.shared, i, state.rotation)
        if attempt + interval < free:
            free = attempt + interval
            reason = "in the rotation that looks after sources that are hardly worth a fetch"
            if sources.failures[i]:
                reason = "to see whether it answers again"
        shortest = attempt + float(sources.shortest[i])
        if shortest > free:
            free, reason = shortest, "by its minimum interval"
    if sources.pending[i] > 0.0 and free <= now:
        reason = "since it was pinged"
    if sources.blocked[i] > free:
        free = float(sources.blocked[i])
        if sources.lease[i]:
            reason = "when its lease ends"
        elif sources.failures[i]:
            reason = "some minutes after its last fetch failed"
        elif state.reasons.of(row):
            reason = "since it was passed over"
        else:
            reason = "as asked with the last report"
    for host in politeness.chain(state.shared.hosts, int(sources.host[i])):
        if (opens := politeness.opening(state.shared.hosts, host)) > free:
            free = opens
            name = state.host_names[host]
            reason = f"when its host {name} accepts a fetch"
            if opens == state.shared.hosts["blocked"][host]:
                command = f"`ephemeral-crawl store --resume {shlex.quote(f'host:{name}')}`"
                reason = f"since its host {name} asked to be left alone; to fetch it before, run "
                reason += command
    tag = int(sources.tag[i])
    if (opens := float(state.tags_open()[tag])) > free:
        free = opens
        reason = f"when the maximum of its tag {state.tags.names[tag]} leaves budget for it"
    return max(free, attempt), reason


def explain(state: State, i: int, now: float, offset: float) -> Explanation:
    """Return the explanation of a source."""
    sources, shared = state.sources, state.shared
    estimate = learning.belief(sources, shared, i)
    has_pings = bool(sources.pending[i] > 0 or sources.pinged_for[i] > 0)
    announced_rate, kind = estimate.precision * estimate.ping_rate, int(sources.kind[i])
    decay_error = 0.0
    if not state.settings.half_life and not sources.half_life[i]:
        decay, error = state.totals.decay()
        decay_error = math.log(2.0) / decay * error / decay
    number = float(sources.worth_items[i]) + shared.worth_items
    value = state.price_at(now)
    at_half = shared._replace(surplus=shared.surplus_at_half)
    due, reason = next_due(state, i, now)
    leased = state.leased_until(i) > now
    failed_at, failure, _ = state.reasons.of(i) or (math.inf, "", "")
    renamed_at, renamed_from = state.reasons.renamed(i) or (math.inf, "")
    name = state.names[i]
    assert name is not None
    longest = float(sources.longest[i])
    without, costs = _without_ceiling(state, i, value)
    spends, brings = flow(state, i, value)
    tag, weight, factor = int(sources.tag[i]), float(sources.importance[i]), sources.factor[i]
    return Explanation(
        source=name,
        rate=3600.0 * (estimate.silent + announced_rate),
        rate_error=3600.0 * estimate.error,
        worth=estimate.worth / weight,
        worth_error=estimate.worth / weight * math.sqrt(state.totals.variation / max(number, 1.0)),
        half_life=math.log(2.0) / estimate.decay,
        half_life_error=decay_error,
        precision=estimate.precision if has_pings else None,
        recall=announced_rate / max(estimate.silent + announced_rate, 1e-30) if has_pings else None,
        signal=state.kinds[kind] if has_pings else None,
        pinged_at=_clock(float(sources.pinged[i]) if has_pings else math.inf, offset),
        signal_delay=float(delays(state.kind_pings)[kind]) if has_pings else None,
        silent_rate=3600.0 * estimate.silent,
        guessed=learning.is_guess(sources, i),
        fetched_at=_clock(float(sources.fetched[i]), offset),
        answering=life.answering(sources, shared, i, now),
        answering_soon=life.answering_soon(sources, shared, i, now),
        dead=life.dead(sources, shared, i),
        value=price.value_now(sources, shared, i, now),
        index=price.index_now(sources, shared, i, now) * float(factor),
        price=value * float(factor),
        due_at=_clock(due, offset),
        interval=_interval(state, i, value),
        reason=reason,
        due_after_ping=_clock(_due_after_ping(state, i, now), offset),
        interval_at_half_price=_interval(state, i, 0.5 * value, at_half),
        max_interval=longest if longest < math.inf else None,
        interval_without=without,
        max_interval_costs=3600.0 * costs,
        leased=leased,
        paused=bool(sources.marks[i] & STOPPED),
        failures=int(sources.failures[i]),
        failed_at=_clock(failed_at, offset),
        failure=failure,
        cause=cause_of_failure(state, i),
        advice=advice_on(state, i),
        renamed_at=_clock(renamed_at, offset),
        renamed_from=renamed_from,
        weight=weight,
        tag=state.tags.names[tag] or None,
        binds=state.tags.binds(tag),
        multiplier=value * (float(factor) - 1.0) if state.tags.binds(tag) else 0.0,
        announces=bool(sources.marks[i] & LOOKS),
        spends=spends,
        brings=brings,
    )


def flow(state: State, i: int, value: float) -> tuple[float, float]:
    """Return the budget units per hour that fetches of a source take at a price if it answers, and
    the worth per hour that they bring."""
    interval = price.interval_at(state.sources, state.shared, i, value, state.rotation)
    estimate = learning.belief(state.sources, state.shared, i)
    ceiling, _ = price.planned(estimate, 0.0)
    rate = 3600.0 / max(interval, 1.0)
    return (
        rate * float(state.sources.cost[i]),
        -ceiling * math.expm1(-estimate.decay * min(interval, 1e12)) * rate,
    )


def _interval(state: State, i: int, value: float, shared: Shared | None = None) -> float | None:
    """Return the time between two fetches at a price without pings, None if it is infinite."""
    shared = state.shared if shared is None else shared
    interval = price.interval_at(state.sources, shared, i, value, state.rotation)
    return interval if interval < math.inf else None


def _without_ceiling(state: State, i: int, value: float) -> tuple[float | None, float]:
    """Return the interval at a price without the source's maximum interval, and the net worth per
    second that the latter costs: of what is collected, less the price of the fetches."""
    source = state.sources[[i]]  # a copy: others may be reading the state
    with_ceiling = _interval(state, i, value)
    source.longest[0] = math.inf
    interval = price.interval_at(source, state.shared, 0, value, state.rotation)
    free = interval if interval < math.inf else None
    estimate, cost = learning.belief(source, state.shared, 0), price.charge(source, 0)
    ceiling, _ = price.planned(estimate, 0.0)

    def net(interval: float | None) -> float:
        if interval is None:
            return 0.0
        period = max(interval, 1.0)
        return (-ceiling * math.expm1(-estimate.decay * period) - value * cost) / period

    return free, max(net(free) - net(with_ceiling), 0.0)


def _due_after_ping(state: State, i: int, now: float) -> float:
    source = state.sources[[i]]  # a copy, as above
    if source.fetched[0] != NEVER:
        decay = learning.decay_of(source, state.shared, 0)
        elapsed = max(now - float(source.pinged[0]), 0.0)
        shot = float(source.shot[0]) * math.exp(-decay * elapsed) if source.shot[0] else 0.0
        source.shot[0], source.pinged[0] = shot + 1.0, now
        source.pending[0] += 1.0
    return _next_due(state, i, source, now)[0]


def _clock(time: float, offset: float) -> float | None:
    """Return a time of the scheduler in the clock's, None if it is infinite."""
    return time - offset if abs(time) < math.inf else None


def _number(x: float) -> str:
    return f"{x:.3g}"


def duration(seconds: float) -> str:
    """Return a duration in words, with three digits.

    >>> duration(90.0), duration(7200.0)
    ('90 s', '2 h')
    """
    for unit, name in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def time_text(seconds: float) -> str:
    """Return a time of the clock in words, such as "2026-11-23 10:00:00 UTC"."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s"
