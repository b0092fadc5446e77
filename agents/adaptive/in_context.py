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

import json
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.base import (
    KnownParameters,
    Pings,
    count_pings,
    crawled_and_age,
    next_multiplier,
)
from agents.adaptive.engine import EstimatedQueue, QueuePlan
from agents.inference.answers import Answers
from agents.inference.cycles import DailyCycles, published
from agents.inference.pings import SignalQuality
from agents.inference.rates import MOST_ITEMS, CrawlOutcome
from agents.inference.regimes import TopicFactors, TopicSums
from agents.policies.base import (
    Agent,
    Environment,
    ObservationView,
    State,
    graded,
    needs,
)
from agents.policies.topics import greedy_priority
from agents.theory.checks import CheckedArm
from agents.theory.closed_form import age_index, decayed
from crawl_env import NEVER, Deadline, DiminishingReturns, Sources, Task
from crawl_env.compiled import compiled
from crawl_env.errors import check_positive
from crawl_env.numerics import BoolArray, FloatArray, IntArray
from crawl_env.simulation.observation import SUMMED

Array32 = NDArray[np.float32]
WEIGHTS = Path(__file__).with_name("in_context.safetensors")

DECAYS = np.geomspace(1 / 27, 27.0, 7)  # (J,) κ
_PROBES = np.array([0.2, 1.0, 5.0])  # decays per tour whose likelihoods are inputs
_LONG, _SHORT = 30.0, 5.0  # tours over which the two shorter memories fade to 1/e
_VARIANCE = np.pi**2 / 6  # of ln ξ, for exponential ξ
_LEAST, _MOST = 1e-30, 1e15  # utility of a crawl: below, float32 has too few digits, and it is none
_NEWTON = 50  # steps at most
_PER_TOUR = 4  # how often all sources are inferred anew

# Sums over the crawls of a source. "All" are kept for ever, "long" and "short" fade.
SUMS = (
    *("crawls", "gap", "gap_empty", "harvest", "harvest2", "hits"),
    *("exposure_a", "exposure_b", "exposure_c", "likelihood_a", "likelihood_b", "likelihood_c"),
    *("items", "number", "age", "age2", "log", "age_log"),
    *("long_crawls", "long_gap", "long_exposure", "long_harvest", "long_hits", "long_items"),
    *("short_crawls", "short_gap", "short_exposure", "short_harvest", "short_hits", "short_items"),
    *("last_gap", "last_harvest", "log_harvest", "log_harvest2"),
    *("published_cos", "published_sin"),  # see `agents.inference.cycles.published`
)
_S = len(SUMS)
_GAP, _EMPTY, _HITS, _ITEMS, _LONG_AT, _SHORT_AT, _LAST_AT = 1, 2, 5, 12, 18, 24, 30
_NUMBER, _PUBLISHED_AT = 13, 34
_PRIOR_ITEMS = 2.0  # of a source's rate, of the mean of the fleet, beside that of its topic
# Looks are valued at this part of the estimated rate, which is too high where looks are frequent.
# Chosen on validation runs of Looks100, on which .1 to .5 are alike and 1 collects less.
_CAUTION = 0.5
_FLEET = 12  # numbers that describe a fleet, see `_fleet`
INPUTS = (
    *("crawls", "gap", "gap_empty", "hits", "flow_a", "flow_b", "flow_c", "fit_a", "fit_c"),
    *("dispersion", "hit_rate", "rate", "number", "slope", "slope_known", "level", "plug_in"),
    *("long_crawls", "long_flow", "long_hits", "long_rate"),
    *("short_crawls", "short_flow", "short_hits", "short_rate"),
    *("last_gap", "last_flow", "elapsed", "elapsed_2", "clock"),
    *("told_utility", "told_decay", "shows_items", "shows_sums", "told"),
    *("long_excess", "long_excess_items", "short_excess", "short_excess_items", "effective"),
    *("shrunken_rate", "shrunken_flow", "shrunken_level", "shrunken_worth", "shrunken_plug_in"),
    *("size", "size_spread"),
    *("fleet_rates", "fleet_flows", "fleet_levels", "fleet_clump", "fleet_within", "fleet_sizes"),
)
F = len(INPUTS)
_PLUG_IN = INPUTS.index("shrunken_plug_in")
# Inputs whose means and deviations over the fleet are its context. With all of them the network
# recognised the fleets of its training.
POOLED = tuple(
    INPUTS.index(name)
    for name in (
        *("hits", "flow_b", "fit_a", "fit_c", "dispersion", "hit_rate", "rate", "slope", "level"),
        *("plug_in", "long_excess", "long_excess_items", "short_excess", "effective"),
    )
)
C = 2 * len(POOLED)


_AT_ONCE = 1024  # sources, whose numbers stay in the processor's cache


class Shows(NamedTuple):
    """What an agent observes besides the harvests, each 0 or 1."""

    items: float
    sums: float
    told: float  # mean utilities and decay rates


class Network(NamedTuple):
    """The weights: two hidden layers, the first of which also receives the fleet's context, and a
    linear connection in parallel. The outputs are the logarithms of w_j relative to the plug-in
    estimate of u*, for the mean of the index and for its upper quantile."""

    mean: Array32  # (F + C,) of the inputs and of the context
    std: Array32  # (F + C,)
    first: Array32  # (F, H)
    context: Array32  # (C, H)
    bias: Array32  # (H,)
    second: Array32  # (H, H)
    bias_2: Array32  # (H,)
    out: Array32  # (H, 2J)
    linear: Array32  # (F, 2J)
    bias_out: Array32  # (2J,)
    optimism: Array32  # (2,) share of the quantile in the index; β, growth with what is unseen

    def shift(self, context: Array32) -> Array32:
        """Return what the context (B, C) of fleets adds to their first layers, (B, H)."""
        standard = (context - self.mean[F:]) / self.std[F:]
        return np.asarray(np.clip(standard, -8, 8) @ self.context + self.bias)

    def weights(self, inputs: Array32, shift: Array32) -> Array32:
        """Return w of inputs (K, F), given the shifts (K, H) of their fleets, or that of the only
        fleet, (1, H): (K, J)."""
        found = np.empty((len(inputs), len(DECAYS)), dtype=np.float32)
        for at in range(0, len(inputs), _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            found[some] = self._weights(inputs[some], shift if len(shift) == 1 else shift[some])
        return found

    def _weights(self, inputs: Array32, shift: Array32) -> Array32:
        x = (inputs - self.mean[:F]) / self.std[:F]
        np.clip(x, -8, 8, out=x)
        hidden = x @ self.first
        hidden += shift
        np.maximum(hidden, 0, out=hidden)
        hidden = hidden @ self.second
        hidden += self.bias_2
        np.maximum(hidden, 0, out=hidden)
        out = hidden @ self.out
        out += x @ self.linear
        out += self.bias_out
        out += inputs[:, _PLUG_IN, None]
        np.clip(out, -40, 40, out=out)
        np.exp(out, out=out)
        j, c = len(DECAYS), self.optimism[0]
        return np.asarray((1 - c) * out[:, :j] + c * out[:, j:])


def read_network(path: str | PathLike[str]) -> tuple[Network, dict[str, Any]]:
    """Return the weights in a safetensors file, and its description of how they were made.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or holds no weights of this network.
    """
    content = Path(path).read_bytes()
    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        about = json.loads(header.pop("__metadata__")["in-context"])
        arrays = {
            name: np.frombuffer(
                content[8 + size :][slice(*entry["data_offsets"])], dtype="<f4"
            ).reshape(entry["shape"])
            for name, entry in header.items()
            if entry["dtype"] == "F32"
        }
        network = Network(**arrays)
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} holds no weights of an in-context agent: {error!r}") from None
    hidden = len(network.bias)
    outputs = 2 * len(DECAYS)
    shapes = ((F + C,), (F + C,), (F, hidden), (C, hidden), (hidden,), (hidden, hidden),
              (hidden,), (hidden, outputs), (F, outputs), (outputs,), (2,))  # fmt: skip
    for name, array, shape in zip(Network._fields, network, shapes, strict=True):
        if array.shape != shape or not np.isfinite(array).all():
            raise ValueError(
                f"{path}: {name} has shape {array.shape}, or numbers that are not finite; it must "
                f"be finite and have shape {shape}"
            )
    if not (network.std > 0).all():
        raise ValueError(f"{path}: std has elements that are not positive")
    return network, about


@cache
def shipped() -> Network:
    """Return the weights that are a part of the package."""
    return read_network(WEIGHTS)[0]


class ContextMemory(NamedTuple):
    """The recurrent state of the agent."""

    clock: FloatArray  # (B, 1) steps
    multiplier: FloatArray  # (B, 1) λ
    age: FloatArray  # (B, N) steps since the last crawl
    sums: Array32  # (B, N, S)
    shift: Array32  # (B, H)
    fleet: FloatArray  # (B, 12) of `_fleet`
    weights: Array32  # (B, N, J)
    decay: Array32  # (B, N) δ, per tour
    answers: Answers | tuple[()]  # () if failures are not observed
    pings: Pings | tuple[()]  # () if they are not used
    signals: State  # of `SignalQuality`; () if pings are not used
    topics: TopicSums | tuple[()]  # () if topics or items are not observed
    left: FloatArray | tuple[()]  # (B, N) content that the last look showed; () without looks
    queue: QueuePlan | tuple[()]  # () without an engine that is heeded


class InContext(Agent):
    """Infers the sources by a network that was trained on simulated worlds, and crawls by index.

    It knows T, M, the costs, and what its own crawls found: the utility (`harvest`), and the number
    of items and the sums over them if they are observed. If the mean utilities and decay rates are
    among the features, it uses these too; and `failed`, as `Adaptive` does.

    If `pings` and `items` are among the features, `SignalQuality` learns the silent rate Λ_s, the
    precision p and the total rate Λ of every source. The network gives what all items are worth,
    of which the share Λ_s/Λ is expected as without pings, and p/Λ of the flow from each ping since
    the last crawl; the index is that of the age at which as much content would be expected.

    If `topic` and `items` are among the features and `pings` is not, the index of a source whose
    content is not observed is multiplied by the factor of its topic: `TopicFactors` infers whether
    the sources of a topic publish more at present than on average, which scales content and index
    alike.

    If items and the sums over them are observed and `pings` are not, `DailyCycles` infers from them
    whether the sources publish more at some times of the day than at others, and when. The index of
    a source whose content is not observed is then that at its present rate, of the content expected
    given its rates since the last crawl.

    The payoff and the actions of the task are known, and heeded as the policies do that are told
    the parameters:

    - Under a `Deadline`, with the features `steps_left`, `mean_utility` and `decay_rate`, the index
      is multiplied by what will be left of the content then, as in `WhittleDeadline`. Decay rates
      that are inferred are too inexact for this.
    - Under `DiminishingReturns` and a budget for every step, with the feature `topic`, sources are
      selected one after the other by the content expected and the index, as in `GreedyTopics`.
    - Where sources can be looked at, with the features `seen` and `shown` and a budget for every
      step, looks have the index of `WhittleLooks` at the inferred parameters. A look tells as much
      of a source as a crawl. No use is made of items and sums over them, which looks do not show,
      nor of parameters that are observed.
    - In front of an `Engine`, with the features `backlog` and `items`, `EstimatedQueue` ranks the
      sources by the index of `WhittleEngine` at the inferred parameters, unless content is
      observed, sources send signals or crawls can fail.

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
        if task.draw is not None and "cost" not in task.features:
            fixed = np.ptp(task.sources.cost) == 0
            if not fixed:
                needs(task, self.name, "cost")
        self.known = KnownParameters.of(task, ("cost",))
        shown, each_step = set(task.features), task.budget_rule == "step"
        self.looks = task.look_cost is not None and {"seen", "shown"} <= shown and each_step
        ends = isinstance(task.payoff, Deadline) and "steps_left" in shown
        self.limit: float | None = None  # of what a topic pays in a step
        if isinstance(task.payoff, DiminishingReturns) and "topic" in shown and each_step:
            self.limit = task.payoff.limit
        self.shows = Shows(
            float("items" in shown and not self.looks),
            float(set(SUMMED) <= shown and not self.looks),
            float({"mean_utility", "decay_rate"} <= shown and not self.looks),
        )
        self.deadline = ends and self.shows.told > 0.0
        self.cyclic = self.shows.sums > 0.0 and "items" in shown and "pings" not in shown
        self.quality = SignalQuality(period=self.known.period)
        topics, seen = task.sources.topic_of, {"topic", "items"} <= shown and "pings" not in shown
        shared = seen and not self.looks and topics.max() + 1 < task.n
        self.topics = TopicFactors(topics, self.tour) if shared else None
        queued = task.engine is not None and {"backlog", "items"} <= shown
        self.queue = EstimatedQueue(task) if queued and EstimatedQueue.hides(task) else None
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
        return ContextMemory(
            clock=np.zeros((b, 1)),
            multiplier=np.full((b, 1), np.nan),
            age=age,
            sums=np.zeros((b, n, _S), dtype=np.float32),
            shift=np.zeros((b, len(self.network.bias)), dtype=np.float32),
            fleet=np.ones((b, _FLEET)),
            weights=np.zeros((b, n, len(DECAYS)), dtype=np.float32),
            decay=np.ones((b, n), dtype=np.float32),
            answers=Answers.none((b, n)) if view.shows("failed") else (),
            pings=Pings(np.where(age > 0, -1.0, 0.0), np.zeros((b, n))) if signalled else (),
            signals=self.quality.begin((b, n)) if signalled else (),
            topics=() if self.topics is None else self.topics.begin(b),
            left=np.zeros((b, n)) if self.looks else (),
            queue=() if self.queue is None else self.queue.begin(b, self.tour),
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
            memory = memory._replace(topics=self._of_topics(view, before, crawled))
            factor = self.topics.factor(TopicSums(*memory.topics))
            index *= np.where(self.task.observed, 1.0, factor)
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
            topic = self.task.sources.topic_of
            return greedy_priority(
                content, index, np.asarray(success), cost, topic, limit, self.task.budget
            ), after
        if self.looks:
            both = np.concatenate([index, self._look_index(memory, cost)], axis=-1)
            return graded(both, level).reshape(view.batch, 2, self.task.n), after
        priority = graded(index, level)
        if self.queue is not None:
            found = (memory.sums[..., _ITEMS] > 0.0).any(axis=1, keepdims=True)
            priority, queue = self.queue.decide(
                QueuePlan(*before.queue), np.where(found, after.clock, np.nan), memory.age,
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
        index = np.empty(memory.age.shape)
        _index(
            memory.age, memory.weights, memory.decay, DECAYS / self.tour, memory.sums, self.tour,
            self.network.optimism[1], index,
        )  # fmt: skip
        if memory.pings:
            index = np.where(memory.pings[0] >= 0, self._pinged(memory), index)
        if self.looks:
            decay, left = self._decay(memory), self._left(memory)
            present = left / memory.fleet[:, :1] + self._since(memory)
            index = np.where(left > 0.0, _index_of_content(present, memory.weights, decay), index)
        if content is not None:
            seen = np.flatnonzero(self.task.observed)
            index[:, seen] = _index_of_content(
                content[:, seen] / memory.fleet[:, :1], memory.weights[:, seen],
                self._decay(memory)[:, seen],
            )  # fmt: skip
        return index

    def observe(
        self, view: ObservationView, memory: ContextMemory
    ) -> tuple[ContextMemory, BoolArray]:
        """Return the state after the results of the last step, and which sources were crawled, or
        looked at if looks are used."""
        shape = memory.age.shape
        crawled, age = np.empty(shape, dtype=bool), np.empty(shape)
        column = self._column(view, "crawled")
        ages = self._column(view, "age") if view.shows("age") else column[:0]
        crawled_and_age(column, ages, memory.age.reshape(-1), crawled.reshape(-1), age.reshape(-1))
        harvest = self._column(view, "harvest")
        if self.looks:
            # What is seen for the first time, since the last crawl or look.
            age, shown = view["seen"], view["shown"]
            looked = (age <= 1.0) & ~crawled
            content = np.where(looked, shown, view["harvest"])
            harvest = np.maximum(content - self._left(memory), 0.0).reshape(-1)
            left = np.where(looked, shown, np.where(crawled, 0.0, memory.left))
            memory, crawled = memory._replace(left=left), crawled | looked
        cells = np.flatnonzero(_after_known_gaps(memory, crawled))
        if not cells.size:
            return memory._replace(age=age), crawled
        found = np.zeros((7, cells.size))
        found[0] = harvest[cells]
        for row, name in enumerate(("items", *SUMMED), start=1):
            if view.shows(name) and not self.looks:
                found[row] = self._column(view, name)[cells]
        sums = memory.sums.copy()
        gaps, unit, period = memory.age.reshape(-1)[cells], self.tour, self.known.period
        _add(
            sums.reshape(-1, _S), cells, gaps / unit, found, unit * period, self.memory,
            (memory.clock[cells // shape[1], 0] - 1.0) * period, self.cycles.frequency / period,
        )  # fmt: skip
        return memory._replace(age=age, sums=sums), crawled

    def _of_day(self, memory: ContextMemory, index: FloatArray) -> FloatArray:
        """Return the index of each source, (B, N), at its rates at this time of the day, where
        `index` is that at its mean rate."""
        clock, sums = memory.clock, memory.sums
        items, gap = (sums[..., i].astype(np.float64) for i in (_NUMBER, _GAP))
        found = sums[..., _PUBLISHED_AT] + 1j * sums[..., _PUBLISHED_AT + 1]
        end = clock - np.minimum(memory.age, 1e9)
        z = self.cycles.amplitudes(found, items, end - gap * self.tour, end)
        if not z.any():
            return index
        factor, decay = self.cycles.factor(z, clock), self._decay(memory)
        since = self.cycles.since(z, clock, memory.age, decay)
        content = np.maximum((memory.weights * since).sum(axis=-1), 0.0)
        present = factor * _index_of_content(content / factor, memory.weights, decay)
        return np.where(z == 0.0, index, present * self._grown(memory))

    def _rates(self, memory: ContextMemory) -> tuple[FloatArray, FloatArray]:
        """Return shape and mean of the posterior of the items of each source per tour, (B, N) each,
        with `_PRIOR_ITEMS` items of the mean rate of the fleet as the prior."""
        gap, items = (memory.sums[..., i].astype(np.float64) for i in (_GAP, _ITEMS))
        of_fleet = (items.sum(axis=1) + 1.0) / (gap.sum(axis=1) + 1.0)
        shape = items + _PRIOR_ITEMS
        return shape, shape / (gap + _PRIOR_ITEMS / of_fleet[:, None])

    def _estimates(self, memory: ContextMemory, cost: FloatArray) -> FloatArray:
        """Return the inferred `PARAMETERS` of each source, (B, N, 4)."""
        period = self.known.period
        rate = self._rates(memory)[1] / (self.tour * period)
        flow, decay = self._flow(memory)
        each = flow * memory.fleet[:, :1] / (rate * period)
        known = rate, np.maximum(each, _LEAST), np.maximum(decay / period, _LEAST), cost
        return np.stack([np.broadcast_to(array, rate.shape) for array in known], axis=-1)

    def _of_topics(
        self, view: ObservationView, before: ContextMemory, crawled: BoolArray
    ) -> TopicSums:
        """Return the state of `topics` after the crawls of sources that had been crawled before."""
        assert self.topics is not None
        shape, per_tour = self._rates(before)
        known = _after_known_gaps(before, crawled) & (before.sums[..., _GAP] > 0)
        env, source = np.nonzero(known)
        gap = before.age[env, source]
        found = np.clip(view["items"][env, source].astype(np.float64), 0.0, MOST_ITEMS)
        state, expected = TopicSums(*before.topics), per_tour[env, source] * gap / self.tour
        of_source = shape[env, source]
        return self.topics.update(state, env, source, gap, found, expected, of_source)

    def _heard(
        self,
        view: ObservationView,
        before: ContextMemory,
        memory: ContextMemory,
        crawled: BoolArray,
    ) -> ContextMemory:
        """Return the state after the pings of the last step, and what its crawls tell of them."""
        pings = view["pings"]
        arrived = np.where((pings >= 0) & (pings < MOST_ITEMS), pings, 0.0)
        cells = np.flatnonzero(_after_known_gaps(before, crawled))
        period = self.known.period
        items = self._column(view, "items")[cells].astype(np.float64)
        number, aged = Pings(*before.pings)
        outcome = CrawlOutcome.at(
            memory.age.shape, cells, before.age.reshape(-1)[cells] * period, items, items > 0,
            period, number.reshape(-1)[cells], arrived,
        )  # fmt: skip
        after = Pings(number.copy(), aged.copy())
        decay = self._flow(memory)[1].reshape(-1)
        count_pings(
            arrived.reshape(-1), decay, crawled.reshape(-1), *(a.reshape(-1) for a in after)
        )
        return memory._replace(pings=after, signals=self.quality.update(before.signals, outcome))

    def _flow(self, memory: ContextMemory) -> tuple[FloatArray, FloatArray]:
        """Return the utility that arrives per step, relative to the fleet, and the mean decay per
        step, (B, N) each."""
        weights = memory.weights.astype(np.float64)
        flow = memory.decay * (weights @ (DECAYS / self.tour))
        return flow, flow / np.maximum(weights.sum(axis=-1), 1e-300)

    def _decay(self, memory: ContextMemory) -> FloatArray:
        """Return the decays of the mixture of each source, per step, (B, N, J)."""
        return np.asarray(memory.decay[..., None] * (DECAYS / self.tour))

    def _since(self, memory: ContextMemory) -> FloatArray:
        """Return the content expected of what was published since the last crawl or look, (B, N),
        relative to the fleet."""
        grown = -np.expm1(-self._decay(memory) * memory.age[..., None])
        return np.asarray((memory.weights * grown).sum(axis=-1))

    def _content(self, view: ObservationView, memory: ContextMemory) -> FloatArray:
        """Return the content of the sources that are observed, and of others that expected, (B, N)
        utility."""
        expected = self._since(memory) * memory.fleet[:, :1]
        return (
            expected
            if view.content is None
            else np.where(self.task.observed, view.content, expected)
        )

    def _grown(self, memory: ContextMemory) -> FloatArray:
        """Return the factor by which the index of a source grows while it is not seen, (B, N)."""
        unseen = np.minimum(memory.age, 1e9) / (self.tour * (memory.sums[..., _GAP] + 1.0))
        return np.asarray(1.0 + float(self.network.optimism[1]) * unseen)

    def _pinged(self, memory: ContextMemory) -> FloatArray:
        """Return the index, (B, N), at the content expected given the pings since the crawls."""
        quality, pings = self.quality.quality(memory.signals), Pings(*memory.pings)
        rate = np.maximum(quality.rate, 1e-300)
        each = self._flow(memory)[0] / (rate * self.known.period)
        told = quality.precision * each * pings.aged
        content = quality.silent / rate * self._since(memory) + told
        index: FloatArray = _index_of_content(content, memory.weights, self._decay(memory))
        return index * self._grown(memory)

    def _left(self, memory: ContextMemory) -> FloatArray:
        """Return what is left of the content that the last look showed, (B, N) utility."""
        return np.asarray(memory.left * np.exp(-self._flow(memory)[1] * memory.age))

    def _look_index(self, memory: ContextMemory, cost: FloatArray) -> FloatArray:
        """Return the index of a look at each source, (B, N), relative to the fleet.

        The rate of items, which says how often a look finds something, is that of the crawls and
        looks that did: they count for half of their gaps, and those that found nothing for the
        whole, with one item of the mean rate of the fleet in addition.
        """
        assert self.task.look_cost is not None
        gap, empty, hits = (memory.sums[..., i].astype(np.float64) for i in (_GAP, _EMPTY, _HITS))
        exposure = (empty + 0.5 * (gap - empty)) * self.tour
        of_fleet = (hits.sum(axis=1) + 0.5) / (exposure.sum(axis=1) + 1.0)
        rate = _CAUTION * (hits + 1.0) / (exposure + 1.0 / of_fleet[:, None])
        flow, decay = self._flow(memory)
        each = np.maximum(flow / rate, _LEAST)
        arms = Sources(rate, each, np.maximum(decay, _LEAST), np.broadcast_to(cost, rate.shape))
        index = CheckedArm(arms, self.task.look_cost, arms.cost).index_at_age(memory.age + 1.0)
        return np.where(self.task.observed, 0.0, index * self._grown(memory))

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
            inputs = np.empty((cells.size, F), dtype=np.float32)
            centre = np.empty(cells.size, dtype=np.float32)
            told = self._told(view, self.shows)
            _inputs(
                memory.sums.reshape(-1, _S), cells, n, memory.age.reshape(-1), fleet,
                self._clocks(memory), self.tour, np.array(self.shows), told, inputs,
                centre,
            )  # fmt: skip
            decay.reshape(-1)[cells] = centre
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
        fleet = np.ones((len(memory.age), _FLEET))
        for row in rows:
            fleet[row] = _fleet(memory.sums[row])
        cells = (rows[:, None] * n + np.arange(n)).reshape(-1)
        inputs = np.empty((cells.size, F), dtype=np.float32)
        centre = np.empty(cells.size, dtype=np.float32)
        _inputs(
            memory.sums.reshape(-1, _S), cells, n, memory.age.reshape(-1), fleet,
            self._clocks(memory), self.tour, np.array(shows), self._told(view, shows),
            inputs, centre,
        )  # fmt: skip
        each = inputs.reshape(rows.size, n, F)[:, :, POOLED]
        context = np.concatenate([each.mean(axis=1), each.std(axis=1)], axis=1)
        return inputs, context, fleet[rows], centre

    def _clocks(self, memory: ContextMemory) -> FloatArray:
        """Return the tours since the beginning that are remembered, (B,)."""
        return np.minimum(memory.clock[:, 0] / self.tour, self.memory)

    def _told(self, view: ObservationView, shows: Shows) -> FloatArray:
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

    def _column(self, view: ObservationView, feature: str) -> NDArray[np.floating]:
        features = self.task.features
        return view.array.reshape(-1, len(features))[:, features.index(feature)]


# ------------------------------------------------------------------------------------ compiled


def _after_known_gaps(before: ContextMemory, crawled: BoolArray) -> BoolArray:
    """Return which sources were crawled in the last step after a gap of known length, (B, N)."""
    return crawled & (before.age < NEVER) & (before.age > 0)


@compiled
def _index(
    age: FloatArray,
    weights: Array32,
    centre: Array32,
    decay: FloatArray,
    sums: Array32,
    tour: float,
    growth: float,
    out: FloatArray,
) -> None:
    """Write the index of sources (B, N); `decay` is κ per step, (J,).

    It is raised by the factor 1 + β age / (gaps seen + one tour), lest a source that was unlucky in
    its few crawls is never crawled again."""
    for b in range(age.shape[0]):
        for i in range(age.shape[1]):
            total = 0.0
            for j in range(decay.size):
                m = centre[b, i] * decay[j]
                total += age_index(age[b, i], m, decayed(m)[1], float(weights[b, i, j]))
            unseen = min(age[b, i], 1e9) / (sums[b, i, 1] * tour + tour)
            out[b, i] = total * (1.0 + growth * unseen)


@compiled
def _index_of_content(content: FloatArray, weights: Array32, decay: FloatArray) -> FloatArray:
    """Return the index of known content, (B, K), given the mixture of weights and decays per step,
    (B, K, J): that of the age at which as much is expected, Σ w_j (1 − α_j^k) = x, which Newton's
    method finds from below, and from the ceiling Σ w_j on x itself."""
    out = np.empty(content.shape)
    for b in range(content.shape[0]):
        for i in range(content.shape[1]):
            x, w, m = content[b, i], weights[b, i], decay[b, i]
            age = 0.0
            for _ in range(_NEWTON):
                missing, slope = x, 0.0
                for j in range(m.size):
                    kept = np.exp(-m[j] * age)
                    missing -= w[j] * (1.0 - kept)
                    slope += w[j] * m[j] * kept
                if missing <= 1e-9 * x or slope < 1e-12 * x:
                    break
                age += missing / slope
            total = 0.0
            for j in range(m.size):
                total += age_index(age, m[j], decayed(m[j])[1], float(w[j]))
            out[b, i] = x if w.sum() <= x else min(total, x)
    return out


@compiled
def _add(sums: Array32, cells: NDArray[np.intp], gaps: FloatArray, found: FloatArray,
         unit: float, most: float, time: FloatArray, frequency: float) -> None:  # fmt: skip
    """Add crawls, (K,), after gaps in tours, with harvest, items and sums (7, K), to the sums of
    their sources; `unit` is the tour, time. The sums over more than `most` tours are scaled
    down to as many, so that earlier crawls fade over this time. The crawls were made at `time`,
    (K,), and `frequency` is that of a day."""
    for k in range(cells.size):
        row, x = sums[cells[k]], gaps[k]
        h = min(found[0, k], _MOST) if found[0, k] >= _LEAST else 0.0
        if not (found[0, k] >= 0.0 and x < 1e6):
            continue
        hit = 1.0 if h > 0.0 else 0.0
        items = min(max(found[1, k], 0.0), 1e9)
        row[0] += 1.0
        row[1] += x
        row[2] += x * (1.0 - hit)
        row[3] += h
        row[4] += h * h
        row[5] += hit
        for j in range(3):
            z = _PROBES[j] * x
            exposure = x * (1.0 - decayed(z)[1])
            row[6 + j] += exposure
            row[9 + j] += h * np.log(max(exposure, 1e-12))
        row[12] += items
        number = found[2, k]
        if number >= 1.0 and abs(found[5, k]) <= 1e3 * number:
            row[13] += number
            row[14] += found[3, k] / unit
            row[15] += found[4, k] / unit**2
            row[16] += found[5, k]
            row[17] += found[6, k] / unit
            wave = published(number, found[3, k], found[4, k], time[k], frequency)
            row[_PUBLISHED_AT] += wave.real
            row[_PUBLISHED_AT + 1] += wave.imag
        exposure = x * (1.0 - decayed(x)[1])
        for at, memory in ((_LONG_AT, _LONG), (_SHORT_AT, _SHORT)):
            kept = np.exp(-x / memory)
            for j in range(6):
                row[at + j] *= kept
            row[at] += 1.0
            row[at + 1] += x
            row[at + 2] += exposure
            row[at + 3] += h
            row[at + 4] += hit
            row[at + 5] += items
        row[_LAST_AT] = x
        row[_LAST_AT + 1] = h
        if h > 0.0:
            row[_LAST_AT + 2] += np.log(h)
            row[_LAST_AT + 3] += np.log(h) ** 2
        if row[1] > most:
            share = most / row[1]
            for j in range(_LONG_AT):
                row[j] *= share
            for j in range(_LAST_AT + 2, _S):
                row[j] *= share


@compiled
def _fleet(sums: Array32) -> FloatArray:
    """Return of a fleet: the harvest and items per tour of crawled gaps, the slope and level of
    ln w, and the rate of crawls that found something; and what shrinks the estimates of its
    sources, by the method of moments (empirical Bayes): 1/CV² of the rates, C = Σh²/Σh relative to
    the harvest per tour, 1/CV² of the flows, the harvest per exposure, the variance of ln w within
    a source, the number of items that counts as much as the fleet's level, and the mean of ln h."""
    crawls = gap = harvest = items = number = log = age = down = across = hits = 0.0
    harvest2 = exposure = survived = log_harvest = 0.0
    for i in range(len(sums)):
        row = sums[i]
        crawls += row[0]
        gap += row[1]
        harvest += row[3]
        harvest2 += row[4]
        items += row[12]
        hits += row[5]
        exposure += row[7]
        log_harvest += row[_LAST_AT + 2]
        n = row[13]
        if n > 0.0:
            number += n
            age += row[14]
            log += row[16]
            across += max(row[15] - row[14] * row[14] / n, 0.0)
            down += row[14] * row[16] / n - row[17]
    out = np.empty(_FLEET)
    out[0] = harvest / gap if harvest > 0.0 else 1.0
    out[1] = (items + 0.5) / (gap + 1.0)
    out[2] = min(max((down + 2.0) / (across + 2.0), 0.03), 30.0)
    out[3] = (log + out[2] * age) / number if number > 0.0 else np.log(out[0])
    out[4] = (hits + 0.5) / (gap + 1.0)
    unit, rate = out[0], out[1]
    # At least what it is if all harvests are equal: the squares of tiny ones vanish in float32.
    clump = max(harvest2 / harvest, harvest / crawls) / unit if harvest > 0.0 else 1.0
    flow = harvest / unit / exposure if harvest > 0.0 else 1.0
    rates = gaps = flows = exposures = levels = square = 0.0
    for i in range(len(sums)):
        row = sums[i]
        rates += (row[12] - rate * row[1]) ** 2 - rate * row[1]
        gaps += (rate * row[1]) ** 2
        expected = flow * row[7]
        flows += (row[3] / unit - expected) ** 2 - clump * expected
        exposures += expected**2
        n = row[13]
        if n > 0.0:
            level = (row[16] + out[2] * row[14]) / n - out[3]
            levels += n * level**2
            square += n * n
            survived += n * np.exp(-out[2] * row[14] / n)
    within = 1.6
    if number > 0.0:
        spread = np.log(max(harvest, 1e-30) / max(survived, 1e-30)) - out[3]
        within = (2.0 * max(spread, 0.05) * number + 1.6 * 10.0) / (number + 10.0)
    out[5] = min(max((gaps + 1.0) / max(rates + 1.0, 1e-9), 0.1), 30.0)
    out[6] = clump
    out[7] = min(max((exposures + 1.0) / max(flows + 1.0, 1e-9), 0.1), 30.0)
    out[8] = flow
    out[9] = within
    crawled = 0.0
    for i in range(len(sums)):
        crawled += 1.0 if sums[i, 13] > 0.0 else 0.0
    more = max(number - square / max(number, 1.0), 0.0)
    between = (levels - within * max(crawled - 1.0, 0.0) + 0.3 * 5.0) / (more + 5.0)
    out[10] = min(max(within / max(between, 0.01), 0.2), 50.0)
    out[11] = log_harvest / hits - np.log(unit) if hits > 0.0 else 0.0
    return out


@compiled
def _inputs(
    sums: Array32,
    cells: NDArray[np.intp],
    n: int,
    age: FloatArray,
    fleets: FloatArray,
    clocks: FloatArray,
    tour: float,
    shows: FloatArray,
    told: FloatArray,
    out: Array32,
    centre: Array32,
) -> None:
    for k in range(cells.size):
        cell = cells[k]
        row, x, fleet = sums[cell], out[k], fleets[cell // n]
        unit, rate, slope, level, hit_rate = fleet[0], fleet[1], fleet[2], fleet[3], fleet[4]
        elapsed = min(age[cell] / tour, 1e4)
        number = row[0]
        x[0] = np.log(number + 0.3)
        x[1] = np.log(row[1] + 0.3)
        x[2] = np.log(row[2] + 0.3)
        x[3] = (row[5] + 0.5) / (number + 1.0)
        harvest = row[3] / unit
        for j in range(3):
            x[4 + j] = np.log((harvest + 0.3) / (row[6 + j] + 0.3))
        size = max(row[4] / row[3], row[3] / row[0]) if row[3] > 0.0 else unit  # see `_fleet`
        clump = size / unit
        x[7] = 0.0
        x[8] = 0.0
        if row[3] > 0.0:
            for j in range(2):
                other = 6 if j == 0 else 8
                scaled = harvest * np.log(row[7] / row[other])
                more = (row[other + 3] - row[10]) / unit
                x[7 + j] = min(max((scaled + more) / clump, -6.0), 6.0)
        x[9] = np.log(clump + 0.01)
        x[10] = np.log((row[5] + 0.5) / (row[2] + 0.5 * (row[1] - row[2]) + 0.5 / hit_rate))
        x[11] = np.log((row[12] + 0.5) / (row[1] + 0.5 / rate)) * shows[0]
        x[12] = np.log(row[13] + 0.3) * shows[1]
        x[13] = 0.0
        x[14] = 0.0
        x[15] = 0.0
        own = slope
        if shows[1] > 0.0:
            found = row[13]
            across = 0.0
            down = 0.0
            if found > 0.0:
                across = max(row[15] - row[14] * row[14] / found, 0.0)
                down = row[14] * row[16] / found - row[17]
            weight = _VARIANCE / (0.6 * slope) ** 2
            own = (slope * weight + down) / (across + weight)
            own = min(max(own, 0.05 * slope), 20.0 * slope)
            x[13] = np.log(own)
            x[14] = np.log(across / weight + 0.1)
            x[15] = (row[16] + own * row[14] + 2.0 * level) / (found + 2.0) - np.log(unit)
        x[16] = 0.0
        x[39] = np.log(row[3] / size + 0.3)
        flow = harvest / max(row[7], 1e-6)
        for m in range(2):
            at, memory = (_LONG_AT, _LONG) if m == 0 else (_SHORT_AT, _SHORT)
            kept = np.exp(-elapsed / memory)
            crawls, gap, exposure = row[at] * kept, row[at + 1] * kept, row[at + 2] * kept
            likely, most = flow * exposure, row[12] / max(row[1], 1e-6) * gap
            x[35 + 2 * m] = (row[at + 3] * kept / unit - likely) / np.sqrt(likely * clump + 0.1)
            x[36 + 2 * m] = (row[at + 5] * kept - most) / np.sqrt(most + 0.3) * shows[0]
            to = 17 + 4 * m
            x[to] = np.log(crawls + 0.3)
            x[to + 1] = np.log((row[at + 3] * kept / unit + 0.3) / (exposure + 0.3))
            x[to + 2] = (row[at + 4] * kept + 0.5) / (crawls + 1.0)
            x[to + 3] = np.log((row[at + 5] * kept + 0.5) / (gap + 0.5 / rate)) * shows[0]
        x[25] = np.log(row[_LAST_AT] + 0.1)
        x[26] = np.log(row[_LAST_AT + 1] / unit / (row[_LAST_AT] + 0.05) + 0.05)
        x[27] = np.log(elapsed + 0.1)
        x[28] = np.log(elapsed + 3.0)
        x[29] = np.log(clocks[cell // n] + 0.3)
        utility = told[0, cell] * shows[2]
        decay = told[1, cell] * shows[2]
        x[30] = utility
        x[31] = decay
        if shows[2] > 0.0 and shows[0] > 0.0:
            x[16] = x[11] - np.log(rate) + utility - decay
        elif shows[1] > 0.0:
            x[16] = x[11] + x[15] - x[13]
        elif shows[0] > 0.0:
            x[16] = x[11]
        else:
            x[16] = x[5]
        prior = fleet[5]
        x[40] = np.log((row[12] + prior) / (row[1] + prior / rate)) * shows[0]
        prior = fleet[7] * fleet[6]
        x[41] = np.log((harvest + prior) / (row[7] + prior / fleet[8]))
        x[42] = 0.0
        if shows[1] > 0.0:
            prior = fleet[10]
            x[42] = (row[16] + own * row[14] + prior * level) / (row[13] + prior) - np.log(unit)
        worth, prior = fleet[8] / rate, 2.0 * fleet[10] + 1.0
        seen = row[12] * row[7] / max(row[1], 1e-9)  # items by how much of them was left
        x[43] = np.log((harvest + prior * worth) / (seen + prior)) * shows[0]
        if shows[2] > 0.0 and shows[0] > 0.0:
            x[44] = x[40] - np.log(rate) + utility - decay
        elif shows[1] > 0.0:
            x[44] = x[40] + x[42] - x[13]
        elif shows[0] > 0.0:
            x[44] = x[40] + x[43]
        else:
            x[44] = x[41]
        hits = row[5]
        mean = (row[_LAST_AT + 2] - hits * np.log(unit) + 2.0 * fleet[11]) / (hits + 2.0)
        x[45] = mean - fleet[11]
        x[46] = 0.0
        if hits > 0.0:
            apart = row[_LAST_AT + 3] - row[_LAST_AT + 2] ** 2 / hits
            x[46] = np.log((max(apart, 0.0) + 2.0) / (hits + 1.0))
        x[47] = np.log(fleet[5]) * shows[0]
        x[48] = np.log(fleet[7])
        x[49] = np.log(fleet[10]) * shows[1]
        x[50] = np.log(fleet[6] + 0.01)
        x[51] = fleet[9] * shows[1]
        x[52] = fleet[11]
        decay = np.exp(decay) if shows[2] > 0.0 else (own if shows[1] > 0.0 else 1.0)
        centre[k] = min(max(decay, 1e-3), 1e3)
        x[32] = shows[0]
        x[33] = shows[1]
        x[34] = shows[2]
