"""`Stories`: sources of one topic report the same stories, each of which pays once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crawl_env.content.items import check_drawable
from crawl_env.content.process import ArrivalProcess, Block, CellFeed, Cells, Feed, Published
from crawl_env.content.stock import Stock
from crawl_env.content.utility import Distribution, make_distribution
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
        given = check_within("overlap", overlap, 0.0, 1.0, unit="probability")
        if not given:
            raise ValueError(
                "overlap is 0, with which no source reports anything; give a probability above 0, "
                "or arrivals='poisson-items', which have no duplicates"
            )
        object.__setattr__(self, "overlap", given)
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


class StoryFeed(CellFeed):
    """The reports of stories at B·N cells."""

    _arrivals: Stories

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
        expected = most.T * window / arrivals.overlap
        check_drawable(float(expected.sum()))
        drawn = rng.poisson(expected)
        row, of_topic = (np.repeat(i.ravel(), drawn.ravel()) for i in np.indices(drawn.shape))
        age = rng.random(row.size) * window
        size = arrivals.utility.sample(rng, row.size)
        members, sizes = np.argsort(topic, kind="stable"), np.bincount(topic)
        begin = np.cumsum(sizes) - sizes
        story = np.repeat(np.arange(row.size), sizes[of_topic])
        place = np.arange(story.size)
        place -= np.repeat(np.cumsum(sizes[of_topic]) - sizes[of_topic], sizes[of_topic])
        source = members[begin[of_topic[story]] + place]
        share = rate[row[story], source] / np.maximum(most.T[row, of_topic][story], 1e-300)
        reported = rng.random(story.size) < arrivals.overlap * share
        story, source = story[reported], source[reported]
        late = arrivals.lag * rng.standard_exponential(story.size)
        utility = size[story] * at(sources.mean_utility)[row[story], source]
        cell = envs[row[story]] * n + source
        return Published(cell, age[story] - late, utility, first + story), row.size

    def longest(self, envs: IntArray, steps: FloatArray) -> float:
        """Return the number of steps whose stories matter to content of `steps` (b, N) steps."""
        decay = np.broadcast_to(self._sources.decay_per_step, self._shape)[envs]
        faded = np.where(np.isinf(steps), self._arrivals.decay.end / decay, steps)
        return float(faded.max(initial=0.0)) + _LAGS * self._arrivals.lag


class StoryStock(Stock):
    """Uncollected items of stories, each of which pays once.

    Items that have been paid elsewhere have utility 0.

    Attributes:
        known: (B, N) number of items of the last crawl of each source that had been paid.
    """

    _feed: StoryFeed

    def __init__(self, feed: Feed, shape: tuple[int, int], count: bool = False) -> None:
        super().__init__(feed, shape, count)
        self.known = np.zeros(shape)
        self._items, self._stories = Published.concatenate([]), 0

    def change_feed(self, feed: Feed) -> None:
        assert isinstance(feed, StoryFeed)
        self._feed = feed
        self.flat = self.value.reshape(-1)
        self._flat_count = None if self.count is None else self.count.reshape(-1)

    def start(self, envs: IntArray, steps: FloatArray, rng: np.random.Generator) -> None:
        n = self.value.shape[1]
        self.known[envs] = 0.0
        self._items = self._items.only(~np.isin(self._items.cell // n, envs))
        drawn = self._draw(envs, self._feed.longest(envs, steps), rng)
        since = np.zeros(self.value.shape)
        since[envs] = steps
        collected = drawn.age > since.reshape(-1)[drawn.cell]
        drawn.utility[np.isin(drawn.number, drawn.number[collected])] = 0.0
        self._items = Published.concatenate([self._items, drawn.only(~collected)])
        self._refresh()
        if self.count is not None:
            self.count[envs] = np.where(np.isinf(steps), 0.0, self.count[envs])

    def _draw(self, envs: IntArray, window: float, rng: np.random.Generator) -> Published:
        drawn, stories = self._feed.draw(envs, window, self._stories, rng)
        self._stories += stories
        return drawn

    def advance(self, rng: np.random.Generator) -> None:
        new = self._draw(np.arange(self.value.shape[0]), 1.0, rng)
        aged = self._items._replace(age=self._items.age + 1.0)
        self._items = Published.concatenate([aged, new])
        self._refresh()

    def _refresh(self) -> None:
        """Compute the value and the count from the items, without those that have faded."""
        left = self._feed.survival(self._items._replace(age=np.maximum(self._items.age, 0.0)))
        self._items, left = self._items.only(left > 0), left[left > 0]
        cell, seen = self._items.cell, self._items.age >= 0
        present = np.where(seen, self._items.utility * left, 0.0)
        self.flat[...] = np.bincount(cell, present, self.flat.size)
        if self._flat_count is not None:
            self._flat_count[...] = np.bincount(cell[seen], minlength=self.flat.size)

    def crawl(self, cells: IntArray) -> FloatArray:
        """Collect the items of the cells (K,), and return the utility that each pays, (K,)."""
        asked = np.zeros(self.flat.size, dtype=bool)
        asked[cells] = True
        taken = asked[self._items.cell] & (self._items.age >= 0)
        found = self._items.only(taken)
        found = found.only(np.argsort(found.cell, kind="stable"))
        known = np.bincount(found.cell[found.utility == 0], minlength=self.flat.size)
        self.known.reshape(-1)[cells] = known[cells]
        stories, first = np.unique(found.number, return_index=True)
        pays = found.only(first)
        worth = pays.utility * self._feed.survival(pays)
        paid: FloatArray = np.bincount(pays.cell, worth, self.flat.size).astype(np.float64)
        rest = self._items.only(~taken)
        rest.utility[np.isin(rest.number, stories)] = 0.0
        self._items = rest
        self._refresh()
        return paid[cells]

    def empty(self, cells: IntArray) -> None:
        pass  # `crawl` has removed the items

    def get_state(self) -> dict[str, Any]:
        kept = Published.copied(self._items), self._stories, self.known.copy()
        return {**super().get_state(), "stories": kept}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        items, self._stories, known = state["stories"]
        self._items = Published.copied(items)
        self.known[...] = known
