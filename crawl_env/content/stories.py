"""`Stories`: sources of one topic report the same stories, each of which pays once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.items import check_drawable, check_stored
from crawl_env.content.process import ArrivalProcess, Block, Cells, Feed, Published
from crawl_env.content.stock import Stock
from crawl_env.content.utility import EXPONENTIAL, Distribution, make_distribution
from crawl_env.errors import check_non_negative, check_within
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray

_LAGS = 20.0  # mean lags after which practically no report of a story is still to come


@dataclass(frozen=True, init=False)
class Stories(ArrivalProcess):
    """Items report stories, which several sources of a topic may report and which pay once.

    The stories of a topic (`Sources.topics`) are a Poisson process. Source i reports each with
    probability q_i = pΛ_i / max_j Λ_j, j in the topic, independently of the others, after an
    exponential lag of its own. So the items of every source are a Poisson process of rate Λ_i,
    each worth ξ̄_i times the size ξ of its story, decaying from its appearance at this source: a
    source alone is what it is with `Arrivals(sampler="items")`. But when a crawl collects an item
    of a story, all other items of that story, also those that are still to come, become worthless.
    Of two sources crawled in one step, the first in the fleet is paid. A source without a label is
    a topic of its own and has no duplicates.

    The feature `value` is the utility of the items whose stories have not been paid; `items` counts
    all items of a crawl, and `known` those of them whose stories had been paid. The belief of
    content that is not observed does not take account of duplicates; `whittle-stories` does.

    Arguments:
        overlap: p in (0, 1], the probability with which the most productive source of a topic
            reports a story; 1: it reports all.
        lag: mean lag ≥ 0 of a report, steps; 0: all reports of a story appear at once.
        utility: distribution of ξ, as in `Arrivals`.

    Raises:
        ValueError: an argument is out of range.

    >>> from crawl_env import CrawlVectorEnv
    >>> fleet = Sources([1.0, 1.0], 1.0, 0.1, topics=["news", "news"])
    >>> vec = CrawlVectorEnv(1, fleet, budget=1, arrivals=Stories(overlap=1), start="empty")
    >>> vec.reset(seed=0)[0].ravel()
    array([0., 0.], dtype=float32)
    >>> for _ in range(3):
    ...     observation, *_ = vec.step([[1, 0]])
    >>> bool(observation[0, 0, 0] == observation[0, 1, 0])  # the same stories at both
    True
    """

    overlap: float
    lag: float
    utility: Distribution

    items = True

    def __init__(self, *, overlap: float = 0.5, lag: float = 0.0, utility: Any = "exponential"):
        probability = check_within("overlap", overlap, 0.0, 1.0, unit="probability")
        if not probability:
            raise ValueError(
                "overlap is 0, with which no source reports anything; give a probability above 0, "
                "or arrivals='poisson-items', which have no duplicates"
            )
        object.__setattr__(self, "overlap", probability)
        object.__setattr__(self, "lag", check_non_negative("lag", lag, "steps"))
        object.__setattr__(self, "utility", make_distribution(utility))

    def check(self, sources: Sources) -> None:
        if sources.is_capped or sources.is_signalled:
            raise ValueError(
                f"arrivals are {self!r}, and some sources have a finite capacity or send signals, "
                "which are not defined for stories; leave these out, or use 'poisson-items'"
            )

    def bind(self, sources: Sources, num_envs: int) -> Feed:
        return StoryFeed(self, sources, num_envs)

    def block(self, cells: Cells, state: FloatArray) -> Block:
        raise ValueError(
            f"arrivals are {self!r}, whose sources share stories, so that they cannot be drawn "
            "source by source; use CrawlEnv or CrawlVectorEnv"
        )

    def past(self, cells: Cells, steps: FloatArray) -> Block:
        return self.block(cells, steps)


class StoryFeed(Feed):
    """The reports of stories at B·N cells."""

    _arrivals: Stories

    @cached_property
    def retention(self) -> FloatArray:
        """Fraction of utility that is left after a step, (B, N)."""
        return np.exp(-self.decay).reshape(self._shape)

    def draw(
        self, envs: IntArray, window: float, first: int, rng: np.random.Generator
    ) -> tuple[Published, int]:
        """Return the items of the stories that began in the last `window` steps in the environments
        `envs`, and the number of these stories.

        Items still to come have a negative age; `number` is that of the story, from `first` on.
        """
        arrivals, sources = self._arrivals, self._sources
        topic, n = sources.topic_of, self._shape[1]

        def at(parameter: FloatArray) -> FloatArray:
            return np.broadcast_to(parameter, self._shape)[envs]

        rate = at(sources.arrival_rate * sources.period)
        most = np.zeros((int(topic.max()) + 1, envs.size))
        np.maximum.at(most, topic, rate.T)
        means = most.T * window / arrivals.overlap
        check_drawable(float(means.sum()))
        numbers = rng.poisson(means)
        stories, sizes = int(numbers.sum()), np.bincount(topic)
        age = rng.random(stories) * window
        size = arrivals.utility.sample(rng, stories)
        chance = np.ascontiguousarray(arrivals.overlap * (rate / np.maximum(most[topic].T, 1e-300)))
        uniform = rng.random(int((numbers @ sizes).sum()))
        items = Published.empty(uniform.size)
        members = np.argsort(topic, kind="stable")
        utility = np.ascontiguousarray(at(sources.mean_utility))
        of_stories = numbers, members, sizes, age, size
        n = _report(*of_stories, chance, utility, uniform, envs, first, *items)
        reports = items.only(slice(n))
        np.subtract(reports.age, arrivals.lag * rng.standard_exponential(n), out=reports.age)
        return reports, stories

    def longest(self, envs: IntArray, steps: FloatArray) -> float:
        """Return the number of steps whose stories matter to content of `steps` (b, N) steps."""
        decay = np.broadcast_to(self._sources.decay_per_step, self._shape)[envs]
        lifetimes = np.where(np.isinf(steps), self._arrivals.decay.end / decay, steps)
        return float(lifetimes.max(initial=0.0)) + _LAGS * self._arrivals.lag


class StoryStock(Stock):
    """Uncollected items of stories, each of which pays once.

    A step takes time for the items that are drawn, and a crawl for those that it collects and for
    all others of their stories; what waits takes none. Items are written one behind the other, so
    that those of a story lie side by side, and those of a cell that have appeared are a linked
    list. Where there is no more room, those that have been collected or have faded are left out of
    a new copy. Items that have been paid elsewhere have utility 0.

    Attributes:
        known: (B, N) number of items of the last crawl of each source that had been paid.
    """

    # `_items`, of which the first `_used` are in use, in the order of their stories. The age is
    # that at step 0 of the clock, and the cell is _NONE once an item has been collected.
    # `_before` of each item is the one before it in the list of its cell, `_last` of each cell the
    # last one, and `_coming` are the items that have not appeared.

    feed: StoryFeed

    def __init__(self, feed: Feed, shape: tuple[int, int], count: bool = False) -> None:
        super().__init__(feed, shape, count)
        self.known = np.zeros(shape)
        self._clock, self._stories = 0.0, 0
        self._coming = np.zeros(0, dtype=np.intp)
        # (2, B·N) numbers of items that have appeared: those that can be paid, and the others.
        self._counts = np.zeros((2, self.flat.size))
        self._begin(Published.concatenate([]), 0)

    def _prepare(self, feed: Feed) -> None:
        assert isinstance(feed, StoryFeed)

    def start(self, envs: IntArray, steps: FloatArray, rng: np.random.Generator) -> None:
        n, items = self.value.shape[1], self._items_left()
        if envs.size == len(self.value):  # no item stays: ages are rounded as in new environments
            self._clock, self._stories = 0.0, 0
        self.known[envs] = self.value[envs] = 0.0
        self._counts[:, self._numbers(envs)] = 0.0
        new = self._draw(envs, self.feed.longest(envs, steps), rng)
        since = np.zeros(self.value.shape)
        since[envs] = steps
        collected = new.age > since.reshape(-1)[new.cell]
        new.utility[np.isin(new.number, new.number[collected])] = 0.0
        new = new.only(~collected)
        self._begin(items.only(~np.isin(items.cell // n, envs)), new.cell.size)
        self._add(new)

    def _draw(self, envs: IntArray, window: float, rng: np.random.Generator) -> Published:
        items, stories = self.feed.draw(envs, window, self._stories, rng)
        self._stories += stories
        return items

    def advance(self, rng: np.random.Generator) -> None:
        self._clock += 1.0
        self.value *= self.feed.retention
        self._coming = self._coming[: _appear(self._coming, self._arrays)]
        self._add(self._draw(np.arange(self.value.shape[0]), 1.0, rng))

    def crawl(self, cells: IntArray) -> FloatArray:
        """Collect the items of the cells (K,), and return the utility that each pays, (K,)."""
        self.known.reshape(-1)[cells] = self._counts[1, cells]
        payments = np.zeros(cells.size)
        _collect(np.argsort(cells), cells, payments, self._arrays)
        self._sum_counts()
        return payments

    def empty(self, cells: IntArray) -> None:
        pass  # `crawl` has removed the items

    def _add(self, new: Published) -> None:
        """Add items of new stories."""
        number = new.cell.size
        if self._used + number > self._before.size:
            self._begin(self._items_left(), number)
        places = np.arange(self._used, self._used + number)
        self._write(new._replace(age=new.age - self._clock))
        later = places[: _appear(places, self._arrays)]
        self._coming = np.concatenate([self._coming, later])
        self._sum_counts()

    def _begin(self, items: Published, number: int) -> None:
        """Replace the items by some that are in the values and counts, with room for so many
        others."""
        check_stored(items.cell.size + number, self.feed)
        room = max(_ROOM, _SPACIOUS * (items.cell.size + number))
        whole, real = np.empty((3, room), dtype=np.intp), np.empty((2, room))
        self._items, self._used = Published(whole[0], real[0], real[1], whole[1]), 0
        self._before, self._last = whole[2], np.full(self.flat.size, _NONE)
        self._write(items)
        appeared = items.age + self._clock >= 0.0
        self._coming = np.flatnonzero(~appeared)
        _link(np.flatnonzero(appeared), items.cell, self._before, self._last)

    def _write(self, items: Published) -> None:
        """Write items behind those that are there."""
        here = slice(self._used, self._used + items.cell.size)
        for column, values in zip(self._items, items, strict=True):
            column[here] = values
        self._used = here.stop

    @property
    def _arrays(self) -> tuple[Any, ...]:
        """The arrays of the compiled functions below: the clock and the decay, the lists of the
        cells, the sums over those, and the items."""
        lists = self._before, self._last, self._counts
        items = self._items.only(slice(self._used))
        return self._clock, self.feed.decay, *lists, self.flat, *items

    def _items_left(self) -> Published:
        """Return a copy of the items that have been neither collected nor faded."""
        items = self._items.only(slice(self._used))
        items = items.only(items.cell != _NONE)
        age = np.maximum(items.age + self._clock, 0.0)
        return items.only(self.feed.survival(items._replace(age=age)) > 0.0)

    def _sum_counts(self) -> None:
        if self._flat_count is not None:
            np.sum(self._counts, axis=0, out=self._flat_count)

    def get_state(self) -> dict[str, Any]:
        copies = self._counts.copy(), self.known.copy()
        return {
            **super().get_state(),
            "stories": (self._clock, self._stories, self._items_left(), *copies),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._clock, self._stories, items, counts, known = state["stories"]
        self._begin(Published.copied(items), 0)
        self._counts[...], self.known[...] = counts, known


_NONE = -1  # no item, or no cell
_END = EXPONENTIAL.end
_ROOM, _SPACIOUS = 64, 2  # items at least; places for each item after a new copy


@compiled
def _report(
    numbers: IntArray,
    members: IntArray,
    sizes: IntArray,
    age: FloatArray,
    size: FloatArray,
    chance: FloatArray,
    mean_utility: FloatArray,
    uniform: FloatArray,
    envs: IntArray,
    first: int,
    cell: IntArray,
    ages: FloatArray,
    utility: FloatArray,
    number: IntArray,
) -> int:
    """Write the reports of stories without their lags, and return the number of reports.

    Arguments:
        numbers: (b, topics) number of stories.
        members: (N,) the sources of one topic after the other, of which there are `sizes`.
        age, size: of each story.
        chance, mean_utility: (b, N) of a source, the former of reporting a story of its topic.
        uniform: a random number for each story and source of its topic.
        envs: (b,) numbers of the environments.
        first: number of the first story.
        cell, ages, utility, number: the columns of the reports, written.
    """
    n, story, draw = 0, 0, 0
    for row in range(numbers.shape[0]):
        begin = 0
        for topic in range(numbers.shape[1]):
            for _ in range(numbers[row, topic]):
                for i in range(begin, begin + sizes[topic]):
                    source = members[i]
                    cell[n] = envs[row] * chance.shape[1] + source
                    ages[n] = age[story]
                    utility[n] = size[story] * mean_utility[row, source]
                    number[n] = first + story
                    n += uniform[draw] < chance[row, source]
                    draw += 1
                story += 1
            begin += sizes[topic]
    return n


@inlined
def _insert(place: int, here: int, before: IntArray, last: IntArray) -> None:
    """Insert an item in the list of its cell, which is in the order of the places, so that sums
    over it do not depend on copies and states in between."""
    later, at = _NONE, last[here]
    while at > place:
        later, at = at, before[at]
    before[place] = at
    if later == _NONE:
        last[here] = place
    else:
        before[later] = place


@compiled
def _link(places: IntArray, cell: IntArray, before: IntArray, last: IntArray) -> None:
    """Insert items in the lists of their cells."""
    for place in places:
        _insert(place, cell[place], before, last)


@compiled
def _appear(places: IntArray, arrays: tuple[Any, ...]) -> int:
    """Add those of some items that have appeared to their cells; move the places of the others to
    the front, and return the number of these."""
    clock, decay, before, last, counts, value, cell, age, utility, _ = arrays
    n = 0
    for place in places:
        if age[place] + clock < 0.0:
            places[n] = place
            n += 1
            continue
        here = cell[place]
        _insert(place, here, before, last)
        counts[0 if utility[place] > 0.0 else 1, here] += 1.0
        value[here] += utility[place] * math.exp(-decay[here] * (age[place] + clock))
    return n


@inlined
def _void(place: int, arrays: tuple[Any, ...]) -> None:
    """Take its utility from an item whose story has been paid, unless it has faded."""
    clock, decay, _, _, counts, value, cell, age, utility, _ = arrays
    here = cell[place]
    z = decay[here] * (age[place] + clock)
    if utility[place] == 0.0 or z >= _END:
        return
    if z >= 0.0:  # it has appeared
        counts[0, here] -= 1.0
        counts[1, here] += 1.0
        remaining = value[here] - utility[place] * math.exp(-z)
        value[here] = max(remaining, 0.0) if counts[0, here] > 0.0 else 0.0
    utility[place] = 0.0


@compiled
def _collect(order: IntArray, cells: IntArray, pay: FloatArray, arrays: tuple[Any, ...]) -> None:
    """Collect the items of some cells, one cell after the other in an order, and add to `pay`."""
    clock, decay, before, last, counts, value, cell, age, utility, number = arrays
    for k in order:
        here = cells[k]
        place = last[here]
        while place != _NONE:
            z = decay[here] * (age[place] + clock)
            if utility[place] > 0.0 and z < _END:
                pay[k] += utility[place] * math.exp(-z)
                first = last_of_story = place
                while first > 0 and number[first - 1] == number[place]:
                    first -= 1
                while (
                    last_of_story + 1 < number.size and number[last_of_story + 1] == number[place]
                ):
                    last_of_story += 1
                for other in range(first, last_of_story + 1):
                    if cell[other] != _NONE and other != place:
                        _void(other, arrays)
            cell[place] = _NONE
            place = before[place]
        last[here] = _NONE
        counts[0, here] = counts[1, here] = value[here] = 0.0
