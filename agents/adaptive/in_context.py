"""`InContext`: one small network, trained on simulated worlds, infers what every source is worth.

Given the ages at which a source was crawled, the likelihood of what the crawls found does not
depend on the policy that chose them. What a crawler should believe of a source is therefore a
function of what it saw, which can be learnt by supervision from simulated histories whose
parameters are known (amortised inference). `agents.adaptive.training` trains the network;
its weights are a part of this package.

All inputs are free of units by construction: time is measured in tours, the time in which the
budget covers every source once, and utility relative to the mean that the fleet yields in a tour.
For every source the network gives the weights w_j of a mixture of decays, δ_j = δ κ_j around a
plug-in estimate δ, so that the index at the age of k steps is

    Σ_j w_j (1 − α_j^k (1 + k(1 − α_j))),    α_j = exp(−δ κ_j / tour),

the closed form of Theorem 1 with w_j for u*/C. It increases with the age whatever the network
says.
"""

from __future__ import annotations

from itertools import product
from os import PathLike
from typing import NamedTuple

import numpy as np

from agents.adaptive.base import (
    KnownParameters,
    Pings,
    arrived_pings,
    crawled_and_age,
    next_multiplier,
    task_of_estimates,
)
from agents.adaptive.engine import EstimatedQueue, QueuePlan
from agents.adaptive.network import DECAYS, Network, read_network, shipped
from agents.adaptive.stories import AdaptiveStories
from agents.inference.answers import Answers
from agents.inference.cycles import DailyCycles
from agents.inference.history import (
    EMPTY,
    FLEET,
    GAP,
    HITS,
    ITEMS,
    LEAST,
    NUMBER,
    POOLED,
    PUBLISHED,
    SUMS,
    Array32,
    F,
    Shows,
    add_crawls,
    fleet_summary,
    network_inputs,
)
from agents.inference.pings import SignalQuality
from agents.inference.rates import MOST_ITEMS, CrawlOutcome
from agents.inference.regimes import RegimeBelief, RegimeFilter
from agents.policies.base import (
    Agent,
    Environment,
    ObservationView,
    State,
    graded,
    needs,
)
from agents.policies.deadline import DeadlineAssignment
from agents.policies.stories import stories_of
from agents.policies.topics import greedy_priority
from agents.theory.checks import CheckedArm
from agents.theory.mixtures import index_of_content, mixture_content, mixture_index
from crawl_env import NEVER, Deadline, DiminishingReturns, Regimes, Sources, Task
from crawl_env.errors import check_positive
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.simulation.observation import SUMMED

_TOLD = ("mean_utility", "decay_rate")
_PER_TOUR = 4  # how often all sources are inferred anew
_PRIOR_ITEMS = 2.0  # of a source's rate, of the mean of the fleet, beside that of its topic
# Looks are valued at this part of the estimated rate, which is too high where looks are frequent.
# Chosen on validation runs of Looks100, on which .1 to .5 are alike and 1 collects less.
_CAUTION = 0.5
# Of the regimes of topics: constant rates, or ratios of the rates, and tours that regimes last.
_LAWS = ((1.0, np.inf), *product((3.0, 10.0), (2.0, 8.0)))
_PRIOR = (0.5, *(0.125,) * 4)


class ContextMemory(NamedTuple):
    """The recurrent state of the agent."""

    clock: FloatArray  # (B, 1) steps
    multiplier: FloatArray  # (B, 1) λ
    age: FloatArray  # (B, N) steps since the last crawl
    sums: Array32  # (B, N, S)
    shift: Array32  # (B, H)
    fleet: FloatArray  # (B, 12) of `fleet_summary`
    weights: Array32  # (B, N, J)
    decay: Array32  # (B, N) δ, per tour
    answers: Answers | tuple[()]  # () if failures are not observed
    pings: Pings | tuple[()]  # () if they are not used
    signals: State  # of `SignalQuality`; () if pings are not used
    topics: RegimeBelief | tuple[()]  # () if topics or items are not observed
    excess: FloatArray | tuple[()]  # (B, N) tours, Σ (factor − 1) over the gaps of all crawls
    left: FloatArray | tuple[()]  # (B, N) content that the last look showed; () without looks
    queue: QueuePlan | tuple[()]  # () without an engine that is heeded
    stories: State  # of `AdaptiveStories`; () if sources share none, or they are not heeded


class InContext(Agent):
    """Infers the sources by a network that was trained on simulated worlds, and crawls by index.

    It knows T, M, the costs, and what its own crawls found: the utility (`harvest`), and the number
    of items and the sums over them if they are observed. If the mean utilities and decay rates are
    among the features, it uses these too; and `failed`, as `Adaptive` does.

    If `pings` and `items` are among the features, `SignalQuality` learns the silent rate Λ_s, the
    precision p and the total rate Λ of every source. The network gives what all items are worth,
    of which the share Λ_s/Λ is expected as without pings, and p/Λ of the flow from each ping since
    the last crawl; the index is that of the age at which as much content would be expected.

    If `topic` and `items` are among the features and `pings` is not, `RegimeFilter` infers whether
    rates are constant or the sources of a topic publish more at some times than at others, under
    four laws of such regimes, and which topics do at present. In proportion to the probability that
    rates change, the index of a source whose content is not observed is that at its present rate,
    of the content expected given the regimes since the last crawl. With the features `mean_utility`
    and `decay_rate` the mean rate is that of all crawls of the source, given the regimes before
    them, and the network is not used; otherwise it is that of the network.

    If items and the sums over them are observed and `pings` are not, `DailyCycles` infers from them
    whether the sources publish more at some times of the day than at others, and when. The index of
    a source whose content is not observed is then that at its present rate, of the content expected
    given its rates since the last crawl.

    The payoff and the actions of the task are known, and heeded as the policies do that are told
    the parameters:

    - Under a `Deadline`, with the features `steps_left`, `mean_utility` and `decay_rate`, it is
      `DeadlineAssignment` at the inferred rates, if no content is observed or signalled, costs are
      equal, the budget is for every step, and nothing of the above or below is inferred. Otherwise
      the index is multiplied by what will be left of the content then, as in `WhittleDeadline`.
      Decay rates that are inferred are too inexact for this.
    - Under `DiminishingReturns` and a budget for every step, with the feature `topic`, sources are
      selected one after the other by the content expected and the index, as in `GreedyTopics`.
    - Where sources can be looked at, with the features `seen` and `shown` and a budget for every
      step, looks have the index of `WhittleLooks` at the inferred parameters. A look tells as much
      of a source as a crawl. No use is made of items and sums over them, which looks do not show,
      nor of parameters that are observed.
    - In front of an `Engine`, with the features `backlog` and `items`, `EstimatedQueue` ranks the
      sources by the index of `WhittleEngine` at the inferred parameters, unless content is
      observed, sources send signals or crawls can fail.
    - Where sources share `Stories`, with the features `items`, `known`, `mean_utility` and
      `decay_rate`, a budget for every step and nothing of the above, it is `AdaptiveStories` at the
      inferred rates, with the same exceptions.

    Arguments:
        env: an environment, a vector environment, or a `Task`.
        seed: unused; the agent draws nothing at random.
        weights: a file of weights made by `agents.adaptive.training`; default those of the
            package.
        memory: the time scale, in tours, over which the crawls of a source are forgotten; by
            default they are kept for ever. A shorter memory follows sources that publish often
            and change over months, and costs precision where nothing changes.
        day: the length of a day, time: cycles of this length are looked for.

    Raises:
        ValueError: the features lack `crawled` or `harvest`, or `cost` if fleets are drawn at
            reset; the file is damaged; or `memory` or `day` is not positive.

    >>> from agents import evaluate
    >>> task = {"sources": "table1", "budget": 2, "arrivals": "poisson", "observed": False}
    >>> evaluate("in-context", task, steps=100, seeds=2).reward.shape
    (2,)
    """

    name = "in-context"
    features: tuple[str, ...] = ("age", "crawled", "harvest")

    @classmethod
    def features_in(cls, task: Task) -> tuple[str, ...]:
        return (
            *cls.features,
            *(("failed",) * task.sources.fails),
            *(("steps_left",) * isinstance(task.payoff, Deadline)),
            *(("topic",) * isinstance(task.payoff, DiminishingReturns)),
            *(("seen", "shown") * (task.look_cost is not None)),
            *(("items", "backlog") * (task.engine is not None)),
            *(("items", "known") * _heeds_stories(task)),
        )

    def __init__(
        self,
        env: Environment,
        *,
        seed: int | None = None,
        weights: str | PathLike[str] | Network | None = None,
        memory: float = np.inf,
        day: float = 24.0,
    ) -> None:
        super().__init__(env, seed=seed)
        self.memory = np.inf if memory == np.inf else check_positive("memory", memory, "tours")
        task = self.task
        self.cycles = DailyCycles(check_positive("day", day, "time") / task.sources.period)
        needs(task, self.name, "crawled")
        needs(task, self.name, "harvest")
        if task.draw is not None and np.ptp(task.sources.cost) > 0:
            needs(task, self.name, "cost")
        self.known = KnownParameters.of(task, ("cost",))
        features, each_step = set(task.features), task.budget_rule == "step"
        self.looks = task.look_cost is not None and {"seen", "shown"} <= features and each_step
        ends = isinstance(task.payoff, Deadline) and "steps_left" in features
        self.limit: float | None = None  # of what a topic pays in a step
        if isinstance(task.payoff, DiminishingReturns) and "topic" in features and each_step:
            self.limit = task.payoff.limit
        self.shows = Shows(
            float("items" in features and not self.looks),
            float(set(SUMMED) <= features and not self.looks),
            float(set(_TOLD) <= features and not self.looks),
        )
        self.deadline = ends and self.shows.told > 0.0
        self.cyclic = self.shows.sums > 0.0 and "items" in features and "pings" not in features
        self.quality = SignalQuality(period=self.known.period)
        topics = task.sources.topic_of
        shows_topics = {"topic", "items"} <= features and "pings" not in features
        shared = shows_topics and not self.looks and topics.max() + 1 < task.n
        self.assignment: DeadlineAssignment | None = None
        signalled = task.observed.any() or "pings" in features
        inferred = signalled or shared or self.cyclic or task.engine is not None
        if self.deadline and each_step and np.ptp(task.sources.cost) == 0 and not inferred:
            told = task_of_estimates(task, "poisson", ("value", "steps_left"))
            self.assignment = DeadlineAssignment(told.replaced(payoff=task.payoff))
        self.topics: RegimeFilter | None = None
        if shared:
            lasting = ((ratio, max(2.0, tours * self.tour)) for ratio, tours in _LAWS)
            laws = tuple(Regimes(ratio, 1.0 / steps) for ratio, steps in lasting)
            self.topics = RegimeFilter(topics, laws, _PRIOR)
        queued = task.engine is not None and {"backlog", "items"} <= features
        self.queue = EstimatedQueue(task) if queued and EstimatedQueue.hides(task) else None
        self.stories: AdaptiveStories | None = None
        if _heeds_stories(task) and self.shows.told and {"items", "known"} <= features:
            stories_task = task_of_estimates(task, task.arrivals, AdaptiveStories.features)
            self.stories = AdaptiveStories(stories_task)
        if weights is None:
            self.network = shipped()
        else:
            self.network = weights if isinstance(weights, Network) else read_network(weights)[0]

    @property
    def tour(self) -> float:
        """Steps in which the budget covers every source once, at least 1."""
        return max(1.0, self.task.n / self.known.affordable)

    def begin(self, view: ObservationView) -> ContextMemory:
        b, n = view.batch, self.task.n
        age = (view["age"] if view.shows("age") else np.ones((b, n))) - 1.0
        signalled = view.shows("pings") and view.shows("items")
        retention = np.exp(-self.known.period * view["decay_rate"]) if self.shows.told else 1.0
        return ContextMemory(
            clock=np.zeros((b, 1)),
            multiplier=np.full((b, 1), np.nan),
            age=age,
            sums=np.zeros((b, n, len(SUMS)), dtype=np.float32),
            shift=np.zeros((b, len(self.network.bias)), dtype=np.float32),
            fleet=np.ones((b, FLEET)),
            weights=np.zeros((b, n, len(DECAYS)), dtype=np.float32),
            decay=np.ones((b, n), dtype=np.float32),
            answers=Answers.none((b, n)) if view.shows("failed") else (),
            pings=Pings.none(age) if signalled else (),
            signals=self.quality.begin((b, n)) if signalled else (),
            topics=() if self.topics is None else self.topics.begin(age, retention),
            excess=() if self.topics is None else np.zeros((b, n)),
            left=np.zeros((b, n)) if self.looks else (),
            queue=() if self.queue is None else self.queue.begin(b, self.tour),
            stories=() if self.stories is None else self.stories.begin(view),
        )

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        before = ContextMemory(*state)
        memory, crawled = self.observe(view, before)
        memory = self.infer(view, memory, crawled)
        if before.pings:
            memory = self._heard(view, before, memory, crawled)
        index = self.index(memory, view.content)
        if self.cyclic:
            index = np.where(self.task.observed, index, self._of_day(memory, index))
        if self.topics is not None:
            memory = self._of_topics(view, before, memory, crawled)
            index = np.where(self.task.observed, index, self._of_regimes(view, memory, index))
        cost, level, multiplier = self._cost(view), None, memory.multiplier
        index /= cost
        answers = memory.answers
        if answers:
            answers = answers.counting(view["crawled"] > 0, view["failed"])
            index *= answers.probability()
        if self.deadline:
            index *= np.exp(-self.known.period * view["decay_rate"] * view["steps_left"])
        if self.known.average:
            level, multiplier = next_multiplier(index, cost, self.known, multiplier, memory.clock)
        after = memory._replace(clock=memory.clock + 1.0, multiplier=multiplier, answers=answers)
        if self.limit is not None:
            success, limit = answers.probability() if answers else 1.0, self.limit
            content = self._content(view, memory)
            item = np.zeros(1)
            if self.shows.told:
                item = np.where(self.task.observed, 0.0, view["mean_utility"])
            return greedy_priority(
                content, item, index * memory.fleet[:, :1], np.asarray(success), cost,
                self.task.sources.topic_of, limit, self.task.budget,
            ), after  # fmt: skip
        if self.looks:
            both = np.concatenate([index, self._look_index(memory, cost)], axis=-1)
            return graded(both, level).reshape(view.batch, 2, self.task.n), after
        if self.assignment is not None:
            left, utility, decay = (view[name] for name in ("steps_left", *_TOLD))
            growth = self._growth(memory) * (answers.probability() if answers else 1.0)
            rate = growth * memory.fleet[:, :1] * self._flow(memory)[0] / self.known.period
            rate = np.maximum(rate / np.maximum(utility, LEAST), LEAST)
            content = growth * self._content(view, memory)
            told = np.broadcast_arrays(content, left, rate, utility, decay, cost)
            told_view = ObservationView(np.stack(told, axis=-1), self.assignment.task)
            return self.assignment.priority(told_view), after
        if self.stories is not None:
            rate = self._rates(memory)[1] / (self.tour * self.known.period)
            observed = memory.age, *(view[name] for name in ("crawled", "items", "known"))
            estimates = rate, view["mean_utility"], view["decay_rate"], cost
            columns = np.stack(np.broadcast_arrays(*observed, *estimates), axis=-1)
            stories_view = ObservationView(columns, self.stories.task)
            priority, stories = self.stories.decide(stories_view, before.stories)
            return priority, after._replace(stories=stories)
        priority = graded(index, level)
        if self.queue is not None:
            has_items = (memory.sums[..., ITEMS] > 0.0).any(axis=1, keepdims=True)
            priority, queue = self.queue.decide(
                QueuePlan(*before.queue), np.where(has_items, after.clock, np.nan), memory.age,
                view["backlog"], lambda: self._estimates(memory, cost), priority,
            )  # fmt: skip
            after = after._replace(queue=queue)
        return priority, after

    def index(self, memory: ContextMemory, content: FloatArray | None = None) -> FloatArray:
        """Return the index of each source as inferred, times C, (B, N), relative to the fleet.

        Arguments:
            content: (B, N) utility; with it, sources that are observed have the index of the age
                at which as much content would be expected.
        """
        index = mixture_index(memory.age, memory.weights, self._slowest(memory))
        if memory.pings:
            index = np.where(memory.pings[0] >= 0, self._ping_index(memory), index)
        index *= self._growth(memory)
        if self.looks:
            slowest, rest = self._slowest(memory), self._content_left(memory)
            present = rest / memory.fleet[:, :1] + self._since(memory)
            index = np.where(rest > 0.0, index_of_content(present, memory.weights, slowest), index)
        if content is not None:
            which = np.flatnonzero(self.task.observed)
            index[:, which] = index_of_content(
                content[:, which] / memory.fleet[:, :1], memory.weights[:, which],
                self._slowest(memory)[:, which],
            )  # fmt: skip
        return index

    def observe(
        self, view: ObservationView, memory: ContextMemory
    ) -> tuple[ContextMemory, BoolArray]:
        """Return the state after the results of the last step, and which sources were crawled, or
        looked at if looks are used."""
        crawled, age = crawled_and_age(view, memory.age)
        harvest = view.column("harvest")
        if self.looks:
            # What is seen for the first time, since the last crawl or look.
            age, look = view["seen"], view["shown"]
            looked = (age <= 1.0) & ~crawled
            content = np.where(looked, look, view["harvest"])
            harvest = np.maximum(content - self._content_left(memory), 0.0).reshape(-1)
            rest = np.where(looked, look, np.where(crawled, 0.0, memory.left))
            memory, crawled = memory._replace(left=rest), crawled | looked
        cells = np.flatnonzero(_after_known_gaps(memory, crawled))
        if not cells.size:
            return memory._replace(age=age), crawled
        harvests = np.zeros((7, cells.size))
        harvests[0] = harvest[cells]
        for row, name in enumerate(("items", *SUMMED), start=1):
            if view.shows(name) and not self.looks:
                harvests[row] = view.column(name)[cells]
        sums = memory.sums.copy()
        gaps, unit, period = memory.age.reshape(-1)[cells], self.tour, self.known.period
        add_crawls(
            sums.reshape(-1, len(SUMS)), cells, gaps / unit, harvests, unit * period, self.memory,
            (memory.clock[cells // self.task.n, 0] - 1.0) * period, self.cycles.frequency / period,
        )  # fmt: skip
        return memory._replace(age=age, sums=sums), crawled

    def _of_day(self, memory: ContextMemory, index: FloatArray) -> FloatArray:
        """Return the index of each source, (B, N), at its rates at this time of the day, where
        `index` is that at its mean rate."""
        clock, sums = memory.clock, memory.sums
        items, gap = (sums[..., i].astype(np.float64) for i in (NUMBER, GAP))
        waves = sums[..., PUBLISHED] + 1j * sums[..., PUBLISHED + 1]
        end = clock - np.minimum(memory.age, 1e9)
        z = self.cycles.amplitudes(waves, items, end - gap * self.tour, end)
        if not z.any():
            return index
        factor, slowest = self.cycles.factor(z, clock), self._slowest(memory)
        content = self.cycles.content(z, clock, memory.age, memory.weights, slowest)
        present = factor * index_of_content(content / factor, memory.weights, slowest)
        return np.where(z == 0.0, index, present * self._growth(memory))

    def _rates(self, memory: ContextMemory) -> tuple[FloatArray, FloatArray]:
        """Return shape and mean of the posterior of the items of each source per tour, (B, N) each,
        with `_PRIOR_ITEMS` items of the mean rate of the fleet as the prior."""
        gap, items = (memory.sums[..., i].astype(np.float64) for i in (GAP, ITEMS))
        if self.topics is not None:
            gap += memory.excess
        of_fleet = (items.sum(axis=1) + 1.0) / (gap.sum(axis=1) + 1.0)
        shape = items + _PRIOR_ITEMS
        return shape, shape / (gap + _PRIOR_ITEMS / of_fleet[:, None])

    def _estimates(self, memory: ContextMemory, cost: FloatArray) -> FloatArray:
        """Return the inferred `PARAMETERS` of each source, (B, N, 4)."""
        period = self.known.period
        rate = self._rates(memory)[1] / (self.tour * period)
        flow, decay = self._flow(memory)
        utility = flow * memory.fleet[:, :1] / (rate * period)
        columns = rate, np.maximum(utility, LEAST), np.maximum(decay / period, LEAST), cost
        return np.stack([np.broadcast_to(array, rate.shape) for array in columns], axis=-1)

    def _of_topics(
        self,
        view: ObservationView,
        before: ContextMemory,
        memory: ContextMemory,
        crawled: BoolArray,
    ) -> ContextMemory:
        """Return the state after a step, with what its crawls tell of the regimes of the topics;
        sources that had been crawled before tell something."""
        assert self.topics is not None
        shape, per_tour = self._rates(before)
        env, source = np.nonzero(_after_known_gaps(before, crawled) & (before.sums[..., GAP] > 0))
        items = np.clip(view["items"][env, source], 0.0, MOST_ITEMS)
        topics, expected = self.topics.update(
            RegimeBelief(*before.topics), crawled, env, source, items,
            per_tour[env, source] / self.tour, shape[env, source], self._retention(view, memory),
        )  # fmt: skip
        gap, excess = before.age[env, source], np.array(before.excess)
        total = before.sums[env, source, GAP] + gap / self.tour
        excess[env, source] += (expected - gap) / self.tour
        excess[env, source] *= memory.sums[env, source, GAP] / total  # what `memory` leaves
        return memory._replace(topics=topics, excess=excess)

    def _retention(self, view: ObservationView, memory: ContextMemory) -> FloatArray:
        """Return the share of the content of each source, (B, N), that a step leaves."""
        if self.shows.told:
            return np.asarray(np.exp(-self.known.period * view["decay_rate"]))
        return np.asarray(np.exp(-self._flow(memory)[1]))

    def _of_regimes(
        self, view: ObservationView, memory: ContextMemory, index: FloatArray
    ) -> FloatArray:
        """Return the index of each source, (B, N), given the regimes of the topics, where `index`
        is that if rates are constant."""
        assert self.topics is not None
        belief = RegimeBelief(*memory.topics)
        chance = np.exp(belief.evidence)
        change = 1.0 - chance[:, :1] / chance.sum(axis=1, keepdims=True)
        evidence = belief.evidence.copy()
        evidence[:, 0] = -np.inf
        changing = belief._replace(evidence=evidence)
        factor, content = self.topics.factor(changing), self.topics.content(changing)
        if self.shows.told:
            flow = self._rates(memory)[1] / self.tour * view["mean_utility"] / memory.fleet[:, :1]
            decay = self.known.period * view["decay_rate"]
            weights = (flow / decay).astype(np.float32)[..., None]
            content *= weights[..., 0] * -np.expm1(-decay)
        else:
            decay, weights = self._slowest(memory), memory.weights
            content *= self._since(memory) / belief.content[:, :, 0, 0]
        present = factor * index_of_content(content / factor, weights, decay) * self._growth(memory)
        return index + change * (present - index)

    def _heard(
        self,
        view: ObservationView,
        before: ContextMemory,
        memory: ContextMemory,
        crawled: BoolArray,
    ) -> ContextMemory:
        """Return the state after the pings of the last step, and what its crawls tell of them."""
        arrived, pings = arrived_pings(view), Pings(*before.pings)
        cells = np.flatnonzero(_after_known_gaps(before, crawled))
        period = self.known.period
        items = view.column("items")[cells].astype(np.float64)
        outcome = CrawlOutcome.at(
            memory.age.shape, cells, before.age.reshape(-1)[cells] * period, items, items > 0,
            period, pings.number.reshape(-1)[cells], arrived,
        )  # fmt: skip
        after = pings.counting(arrived, self._flow(memory)[1], crawled)
        return memory._replace(pings=after, signals=self.quality.update(before.signals, outcome))

    def _flow(self, memory: ContextMemory) -> tuple[FloatArray, FloatArray]:
        """Return the utility that arrives per step, relative to the fleet, and the mean decay per
        step, (B, N) each."""
        weights = memory.weights.astype(np.float64)
        flow = memory.decay * (weights @ (DECAYS / self.tour))
        return flow, flow / np.maximum(weights.sum(axis=-1), 1e-300)

    def _slowest(self, memory: ContextMemory) -> FloatArray:
        """Return the slowest decay of the mixture of each source, per step, (B, N)."""
        return np.asarray(memory.decay * (DECAYS[0] / self.tour))

    def _since(self, memory: ContextMemory) -> FloatArray:
        """Return the content expected of what was published since the last crawl or look, (B, N),
        relative to the fleet."""
        return mixture_content(memory.age, memory.weights, self._slowest(memory))

    def _content(self, view: ObservationView, memory: ContextMemory) -> FloatArray:
        """Return the content of the sources that are observed, and of others that expected, (B, N)
        utility."""
        observed, expected = view.content, self._since(memory) * memory.fleet[:, :1]
        return expected if observed is None else np.where(self.task.observed, observed, expected)

    def _growth(self, memory: ContextMemory) -> FloatArray:
        """Return the factor by which the index of a source grows while it is not seen, (B, N):
        1 + β age / (gaps seen + one tour), lest a source that was unlucky in its few crawls is
        never crawled again."""
        gaps = memory.sums[..., GAP].astype(np.float64) * self.tour + self.tour
        return np.asarray(
            1.0 + float(self.network.optimism[1]) * (np.minimum(memory.age, 1e9) / gaps)
        )

    def _ping_index(self, memory: ContextMemory) -> FloatArray:
        """Return the index, (B, N), at the content expected given the pings since the crawls."""
        quality, pings = self.quality.quality(memory.signals), Pings(*memory.pings)
        rate = np.maximum(quality.rate, 1e-300)
        utility = self._flow(memory)[0] / (rate * self.known.period)
        announced = quality.precision * utility * pings.aged
        content = quality.silent / rate * self._since(memory) + announced
        return index_of_content(content, memory.weights, self._slowest(memory))

    def _content_left(self, memory: ContextMemory) -> FloatArray:
        """Return the rest of the content that the last look showed, (B, N) utility."""
        return np.asarray(memory.left * np.exp(-self._flow(memory)[1] * memory.age))

    def _look_index(self, memory: ContextMemory, cost: FloatArray) -> FloatArray:
        """Return the index of a look at each source, (B, N), relative to the fleet.

        The rate of items, which says how often a look finds something, is that of the crawls and
        looks that did: they count for half of their gaps, and those that found nothing for the
        whole, with one item of the mean rate of the fleet in addition.
        """
        assert self.task.look_cost is not None
        gap, empty, hits = (memory.sums[..., i].astype(np.float64) for i in (GAP, EMPTY, HITS))
        exposure = (empty + 0.5 * (gap - empty)) * self.tour
        of_fleet = (hits.sum(axis=1) + 0.5) / (exposure.sum(axis=1) + 1.0)
        rate = _CAUTION * (hits + 1.0) / (exposure + 1.0 / of_fleet[:, None])
        flow, decay = self._flow(memory)
        utility = np.maximum(flow / rate, LEAST)
        arms = Sources(rate, utility, np.maximum(decay, LEAST), np.broadcast_to(cost, rate.shape))
        index = CheckedArm(arms, self.task.look_cost, arms.cost).index_at_age(memory.age + 1.0)
        return np.where(self.task.observed, 0.0, index * self._growth(memory))

    def infer(
        self, view: ObservationView, memory: ContextMemory, crawled: BoolArray
    ) -> ContextMemory:
        """Return the state with new weights of the sources that were crawled and, several times a
        tour, of all."""
        n = memory.age.shape[1]
        often = np.ceil(np.minimum(memory.clock[:, 0], self.tour) / _PER_TOUR)
        due = memory.clock[:, 0] % np.maximum(often, 1.0) == 0
        weights, decay = memory.weights.copy(), memory.decay.copy()
        shift, fleet = memory.shift, memory.fleet
        if due.any():
            rows = np.flatnonzero(due)
            inputs, context, summary, centre = self.inputs(view, memory, rows, self.shows)
            decay[rows] = centre.reshape(rows.size, n)
            shift, fleet = shift.copy(), fleet.copy()
            fleet[rows], shift[rows] = summary, self.network.shift(context)
            own = shift[rows] if rows.size == 1 else np.repeat(shift[rows], n, axis=0)
            weights[rows] = self.network.weights(inputs, own).reshape(rows.size, n, -1)
        cells = np.flatnonzero(crawled & ~due[:, None])
        if cells.size:
            rows = cells // n
            inputs, decay.reshape(-1)[cells] = self._read(view, memory, cells, fleet, self.shows)
            weights.reshape(-1, weights.shape[-1])[cells] = self.network.weights(
                inputs, shift[rows]
            )
        return memory._replace(weights=weights, shift=shift, fleet=fleet, decay=decay)

    def inputs(
        self, view: ObservationView, memory: ContextMemory, rows: IntArray, shows: Shows
    ) -> tuple[Array32, Array32, FloatArray, Array32]:
        """Return the inputs of the sources of R fleets, (R·N, F), their contexts, (R, C), their
        summaries, (R, 12), and δ, (R·N,)."""
        n = memory.age.shape[1]
        fleet = np.ones((len(memory.age), FLEET))
        for row in rows:
            fleet[row] = fleet_summary(memory.sums[row])
        cells = (rows[:, None] * n + np.arange(n)).reshape(-1)
        inputs, centre = self._read(view, memory, cells, fleet, shows)
        pooled = inputs.reshape(rows.size, n, F)[:, :, POOLED]
        context = np.concatenate([pooled.mean(axis=1), pooled.std(axis=1)], axis=1)
        return inputs, context, fleet[rows], centre

    def _read(
        self,
        view: ObservationView,
        memory: ContextMemory,
        cells: IntArray,
        fleet: FloatArray,
        shows: Shows,
    ) -> tuple[Array32, Array32]:
        """Return the inputs of cells (K,), (K, F), and δ, (K,); `fleet` are the summaries."""
        clocks = np.minimum(memory.clock[:, 0] / self.tour, self.memory)
        return network_inputs(
            memory.sums.reshape(-1, len(SUMS)), cells, memory.age.shape[1], memory.age.reshape(-1),
            fleet, clocks, self.tour, np.array(shows), self._parameter_inputs(view, shows),
        )  # fmt: skip

    def _parameter_inputs(self, view: ObservationView, shows: Shows) -> FloatArray:
        """Return ln of the mean utility relative to its mean over the fleet, and of the decay per
        tour, (2, N) or (2, B·N); zeros if they are not observed."""
        if not shows.told:
            return np.zeros((2, view.batch * self.task.n))
        utility, decay = view["mean_utility"], view["decay_rate"]
        relative = np.log(utility / utility.mean(axis=-1, keepdims=True) + 1e-6)
        per_tour = np.log(decay * (self.known.period * self.tour))
        return np.stack([relative.reshape(-1), per_tour.reshape(-1)])

    def _cost(self, view: ObservationView) -> FloatArray:
        constant = self.known.parameters
        if "cost" in constant:
            return constant["cost"]
        return view["cost"] if view.shows("cost") else np.asarray(self.known.cost)


def _heeds_stories(task: Task) -> bool:
    """Return whether some sources share stories, and nothing else is to be heeded besides."""
    plain = task.payoff is None and task.engine is None and task.look_cost is None
    return plain and stories_of(task) is not None and EstimatedQueue.hides(task)


def _after_known_gaps(before: ContextMemory, crawled: BoolArray) -> BoolArray:
    """Return which sources were crawled in the last step after a gap of known length, (B, N)."""
    return crawled & (before.age < NEVER) & (before.age > 0)
