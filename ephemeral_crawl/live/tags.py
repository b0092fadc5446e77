"""Tags of sources, such as sections or customers, and the budgets that they have of their own.

Fetches are worth most if Σ value is largest subject to Σ cost ≤ B and, for each tag g, to
m_g ≤ Σ cost ≤ M_g over its sources. With the multipliers λ of the budget, η_g of the maximum and
ν_g of the minimum of a tag, each of which is 0 unless its budget binds, the sources of the tag are
due at the price

    λ_g = λ + η_g − ν_g = min(max(λ, p_g(M_g)), p_g(m_g)),

where p_g(b) is the price at which they alone would cost b per second. So a tag that cannot spend
its minimum leaves it to the others, and a search for λ is all that is to be done
(`ephemeral_crawl.live.price.tag_prices`). Estimates err: each of these budgets has a token bucket,
whose level moves the tag's price, and without a token of its maximum no source of it is leased.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.errors import counted, shown
from ephemeral_crawl.live.arguments import name_of, per_second, rate_text
from ephemeral_crawl.live.names import NameTable
from ephemeral_crawl.live.settings import burst_of

MOST_TAGS = 10_000
_SLOPE = 2.0  # of the logarithm of a tag's price by how full the bucket of its budget is
# A minimum lowers the price of a tag to a hundredth at most: what is worth less is no demand.
_LEAST_FACTOR, _MOST_FACTOR = 0.01, 1e6
_LEAST_SHARE, _MOST_SHARE = 1, 2  # bits of `shares`: which bounds are fractions of the budget
NOTHING_LEFT = 1e-6  # budget units
_MOST_OWED = 86_400.0  # seconds of the maximum of a tag that fetches which cost more can use up
_BINDS = 1.005  # factor by which the price of a tag whose budget binds differs
ANY, ALWAYS = np.full(1, math.inf), np.full(1, -math.inf)  # where there are no tags

TAG = np.dtype(
    [
        ("least", "<f8"),  # budget units per second, or a fraction of the budget; 0: no minimum
        ("most", "<f8"),  # likewise; infinite: no maximum
        ("shares", "u1"),
        ("paused", "?"),
        ("room", "<f8"),  # budget units of the maximum that can be spent now; infinite: no maximum
        ("owed", "<f8"),  # budget units of the minimum that were not spent
        ("factor", "<f8"),  # price of the tag ÷ that of the budget
        ("stretch", "<f8"),  # rotation of the tag ÷ that of the fleet
        ("spends", "<f8"),  # budget units per second that it is expected to spend
        ("spent", "<f8"),  # budget units since it was made
        ("least_part", "<f8"),  # of a rate, which this scheduler has; 1 unless it is a shard
        ("most_part", "<f8"),
    ]
)


@dataclass(frozen=True)
class TagStatus:
    """A tag of sources in numbers. Budgets are in budget units per hour."""

    tag: str  # "": the sources without a tag
    sources: int
    paused: bool
    least: float | None  # of the present budget; None: it has no minimum
    most: float | None
    spends: float | None  # that it is expected to spend; None: unknown, as no tag has a budget
    spent: float  # budget units since the tag was made
    price: float  # of a budget unit for its sources
    multiplier: float  # its price less that of the budget, which the bound that `binds` costs
    binds: str  # which of its budgets binds: "most", "least", or "" if none does
    least_set: str | None = None  # argument of `limit_tag`, such as "20%" or "5/h"
    most_set: str | None = None
    least_part: float = 1.0  # part of that rate that this scheduler has; 1 unless it is a shard
    most_part: float = 1.0

    def __str__(self) -> str:
        budgets = (
            ("least", self.least, self.least_set, self.least_part),
            ("most", self.most, self.most_set, self.most_part),
        )
        bounds = "".join(
            f", at {name} {bound:.4g}/h"
            + (f" of {whole} of all shards" if part < 1.0 else "")
            + (" (binds)" if self.binds == name else "")
            for name, bound, whole, part in budgets
            if bound is not None
        )
        spends = "" if self.spends is None else f", expected to spend {self.spends:.4g}/h"
        spent = "nothing spent yet"
        if self.spent:
            spent = f"{self.spent:,.6g} {'unit' if self.spent == 1.0 else 'units'} spent"
        return (
            f"{self.tag or 'without a tag'}: {counted(self.sources, 'source')}"
            + (" (paused)" if self.paused else "")
            + f"{bounds}{spends}; price {self.price:.3g}, {spent}"
        )


Bound = tuple[float, bool]  # of a tag: a rate per second, or a fraction of the budget, and which


def bound_of(name: str, value: object) -> Bound:
    """Return a budget of a tag: a rate per second, or a fraction of the budget, and which it is.

    >>> bound_of("most", "36/h"), bound_of("least", "25%")
    ((0.01, False), (0.25, True))
    """
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return per_second(name, value), False
    try:
        share = float(value.strip()[:-1]) / 100.0
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise ValueError(
            f"{name} is {shown(value)}; give a rate such as '20/h', or a part up to '100%'"
        )
    return share, True


def bounds_of(least: object, most: object) -> tuple[Bound | None, Bound | None]:
    """Return the minimum and the maximum of a tag as `bound_of` does; None: there is none.

    >>> bounds_of("30/h", "20/h")
    Traceback (most recent call last):
    ...
    ValueError: least is '30/h', which is above most, '20/h'
    """
    low, high = (
        None if bound is None else bound_of(name, bound)
        for name, bound in (("least", least), ("most", most))
    )
    if low and high and low[1] == high[1] and low[0] > high[0]:
        raise ValueError(f"least is {shown(least)}, which is above most, {shown(most)}")
    return low, high


def text_of(bound: Bound | None) -> str | None:
    """Return a budget of a tag as `bound_of` takes it.

    >>> text_of((0.01, False)), text_of((0.25, True))
    ('36/h', '25%')
    """
    if bound is None:
        return None
    return f"{100.0 * bound[0]:.12g}%" if bound[1] else rate_text(bound[0])


def _new_tags(number: int) -> NDArray[Any]:
    """Return rows of tags without a budget."""
    table = np.zeros(number, TAG)
    table["most"] = table["room"] = math.inf
    for name in ("factor", "stretch", "least_part", "most_part"):
        table[name] = 1.0
    return table


class Tags:
    """The tags of a fleet; the first stands for sources that have none."""

    def __init__(self) -> None:
        self.names = NameTable()  # the first row has none
        self.names.append(None)
        self.table = _new_tags(1)

    def check_room(
        self, names: Iterable[str | None], used: Callable[[], NDArray[np.int64]]
    ) -> None:
        """Raise ValueError if there would be too many tags with those of some names.

        Arguments:
            used: returns the numbers of the tags of all sources.
        """
        unique = {name for name in names if name is not None}
        new = sum(name not in self.names for name in unique)
        if self.names.number + new > MOST_TAGS:
            unused = len(self._unused(unique, used))
            if self.names.number - unused + new > MOST_TAGS:
                raise ValueError(
                    f"there would be more than {MOST_TAGS:,} tags, the most that there can be, of "
                    "which those that have a budget or are paused count, too; give one that there "
                    "is"
                )

    def numbers(
        self, names: Iterable[str | None], used: Callable[[], NDArray[np.int64]]
    ) -> dict[str | None, int]:
        """Return the number of each tag, a new one, or one that is not used any more, if there is
        none.

        Arguments:
            used: as for `check_room`.
        """
        unique = list(dict.fromkeys(name for name in names if name is not None))
        new = [name for name in unique if name not in self.names]
        if self.names.is_full(len(new), MOST_TAGS + 1):
            unused = self._unused(unique, used)
            self.table[unused] = _new_tags(len(unused))
            self.names.free_unused(unused)
        self.names.add(new)
        more = len(self.names) - len(self.table)
        self.table = np.concatenate([self.table, _new_tags(more)]) if more else self.table
        return {None: 0, **{name: self.names.row(name) for name in unique}}

    def _unused(self, names: Iterable[str], used: Callable[[], NDArray[np.int64]]) -> list[int]:
        """Return the tags without sources and without a budget, that are not paused, but for those
        of some names."""
        table, is_used = self.table, np.zeros(len(self.table), np.bool_)
        is_used[used()] = True
        is_used |= (table["least"] > 0.0) | (table["most"] < math.inf) | table["paused"]
        reserved = {0, *self.names.rows(names)}
        return [
            k
            for k in np.flatnonzero(~is_used).tolist()
            if k not in reserved and self.names[k] is not None
        ]

    @property
    def bounded(self) -> bool:
        """Whether a tag has a budget of its own."""
        return bool(((self.table["least"] > 0.0) | (self.table["most"] < math.inf)).any())

    def bounds(self, budget: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the minimum and maximum of each tag, (T,), budget units per second.

        Minima that together exceed the budget are all reduced by the same factor.

        Arguments:
            budget: the present one of all, per second.
        """
        table, shares = self.table, self.table["shares"]
        least = table["least"] * np.where(shares & _LEAST_SHARE, budget, table["least_part"])
        most = table["most"] * np.where(shares & _MOST_SHARE, budget, table["most_part"])
        least = np.minimum(least, most)
        return least * min(budget / max(float(least.sum()), budget), 1.0), most

    def limit(self, number: int, least: Any, most: Any, parts: Any, budget: float) -> None:
        """Give a tag a minimum and a maximum, as `bound_of` returns them, or None; and which part
        of each is this scheduler's."""
        row = self.table[number]
        row["least_part"], row["most_part"] = parts
        had_bounds = row["least"] > 0.0, row["most"] < math.inf
        row["least"], row["most"], row["shares"] = 0.0, math.inf, 0
        if least is not None:
            row["least"], row["shares"] = least[0], _LEAST_SHARE * bool(least[1])
        if most is not None:
            row["most"] = most[0]
            row["shares"] |= _MOST_SHARE * bool(most[1])
        # A new bucket is half full, where it does not move the price.
        lowest, highest = (0.5 * burst_of(rate[number]) for rate in self.bounds(budget))
        row["owed"] = 0.0 if least is None else float(row["owed"]) if had_bounds[0] else lowest
        row["room"] = math.inf if most is None else float(row["room"]) if had_bounds[1] else highest

    def bound_texts(self, number: int) -> tuple[str | None, str | None]:
        """Return the minimum and the maximum of a tag as `Scheduler.limit_tag` takes them."""
        row = self.table[number]
        shares = int(row["shares"])
        least = float(row["least"]), bool(shares & _LEAST_SHARE)
        most = float(row["most"]), bool(shares & _MOST_SHARE)
        return (
            text_of(least if least[0] > 0.0 else None),
            text_of(most if most[0] < math.inf else None),
        )

    def unbind(self) -> None:
        """Give all tags the price of the budget, since none has one of its own."""
        self.table["factor"] = self.table["stretch"] = 1.0

    def advance(self, elapsed: float, budget: float) -> None:
        """Let some time pass, seconds, in which the buckets fill."""
        for name, rate in zip(("owed", "room"), self.bounds(budget), strict=True):
            has = (rate > 0.0) & (rate < math.inf)
            level = self.table[name][has] + rate[has] * max(elapsed, 0.0)
            self.table[name][has] = np.minimum(level, burst_of(rate[has]))

    def charge(self, tag: NDArray[Any], cost: NDArray[Any], budget: float) -> None:
        """Take what fetches cost, (K,), from the buckets of their tags; less than 0 is given
        back. A fetch that is given back may have been charged before there were tags, so that what
        a tag has spent stays at 0 then. What a tag owes of its maximum is paid within a day: it
        does not owe more."""
        total = np.bincount(tag, cost, minlength=len(self.table))
        most = self.bounds(budget)[1]
        self.table["spent"] = np.maximum(self.table["spent"] + total, 0.0)
        self.table["room"] = np.maximum(self.table["room"] - total, -_MOST_OWED * most)
        self.table["owed"] = np.maximum(self.table["owed"] - total, 0.0)

    def room_at(self, elapsed: float, budget: float) -> NDArray[np.float64]:
        """Return the budget units of each tag's maximum that can be spent after some time, (T,)."""
        most = self.bounds(budget)[1]
        room: NDArray[np.float64] = self.table["room"] + most * max(elapsed, 1e-9)
        return np.minimum(room, burst_of(most))

    def opens(self, now: float, budget: float) -> NDArray[np.float64]:
        """Return from when on sources of each tag may be leased, (T,), given its buckets now."""
        room, most = self.table["room"], self.bounds(budget)[1]
        wait = np.maximum(2.0 * NOTHING_LEFT - room, 0.0) / most
        times: NDArray[np.float64] = np.where(room > NOTHING_LEFT, -math.inf, now + wait)
        return times

    def set_prices(self, common: float, alone: NDArray[np.float64], budget: float) -> None:
        """Learn the prices at which the maximum and the minimum of each tag would be spent, from
        which follows how the price of each tag differs from that of the budget.

        Arguments:
            common: λ, the price of the budget.
            alone: (T, 2), p_g(M_g), 0 without a maximum, and p_g(m_g), infinite without a minimum.
        """
        least, most = self.bounds(budget)
        room = np.where(most < math.inf, self.table["room"] / burst_of(most), 0.5)
        owed = np.where(least > 0.0, self.table["owed"] / burst_of(least), 0.5)
        low = alone[:, 0] * np.exp(_SLOPE * (0.5 - np.clip(room, 0.0, 1.0)))
        high = alone[:, 1] * np.exp(_SLOPE * (0.5 - np.clip(owed, 0.0, 1.0)))
        price = np.minimum(np.maximum(common, low), high)
        self.table["factor"] = np.clip(price / common, _LEAST_FACTOR, _MOST_FACTOR)

    def binds(self, number: int) -> str:
        """Return which budget of a tag binds: "most", "least", or "" if none does."""
        factor = float(self.table["factor"][number])
        return "most" if factor > _BINDS else "least" if factor < 1.0 / _BINDS else ""

    def as_rows(self) -> list[list[Any]]:
        """Return the tags as JSON holds them: infinite numbers as None."""
        return [
            [name or "", *(None if x == math.inf else x for x in row)]
            for name, row in zip(self.names, self.table.tolist(), strict=True)
        ]

    @staticmethod
    def of_rows(rows: list[list[Any]]) -> Tags:
        """Return what `as_rows` has returned, checked."""
        tags = Tags()
        names = {k: name_of("tag", name) for k, (name, *_) in enumerate(rows) if name}
        tags.names.extend([None] * (len(rows) - 1))
        tags.names.give(list(names), list(names.values()))
        filled = [tuple(math.inf if x is None else x for x in row) for _, *row in rows]
        tags.table = np.array(filled, TAG)
        table = tags.table
        parts = np.array([table["least_part"], table["most_part"]])
        numbers = np.array([table[name] for name in ("least", "most", "owed", "spent", "spends")])
        if (
            0 in names
            or not (numbers >= 0.0).all()
            or np.isnan(table["room"]).any()
            or not ((table["factor"] > 0.0) & (table["stretch"] >= 1.0)).all()
            or not ((parts > 0.0) & (parts <= 1.0)).all()
        ):
            raise ValueError("the tags of sources are damaged")
        return tags
