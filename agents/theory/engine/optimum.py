"""The exact optimum of two or three sources that feed an engine, by value iteration.

The state is the ages of the sources, the number b of items that wait, and the fraction of an item
that a deterministic engine has left over. Sources are not observed, arrivals are Poisson, interest
decays exponentially, and the engine is first in, first out: the law of what an item still waits is
known when it joins the queue, so that its utility can be credited at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse, stats

from agents.theory.engine.joining import joining
from agents.theory.engine.queue import kept_at_place, served, service_of
from agents.theory.optimum import relative_values
from crawl_env import Engine, Sources
from crawl_env.content.utility import Distribution, Exponential
from crawl_env.envs.subsets import maximal_subsets
from crawl_env.errors import check_positive
from crawl_env.numerics import FloatArray, IntArray

_EARLY = 1e-9  # weight of each step, in the reward of a policy


class EngineProcess:
    """The joint decision process of a few sources and their engine.

    Arguments:
        sources: two or three sources; without failures, delays, capacities.
        budget: M, budget units / step.
        engine: with a finite capacity and discipline "fifo".
        ages: largest age, in steps, (N,) or one number; older sources are taken to have this age.
        thresholds: the thresholds that a crawler may choose from in each step; by default that of
            the engine, which is then no choice.
        utility: the distribution of ξ/ξ̄.

    Raises:
        ValueError: the engine is not first in, first out, or its capacity is infinite.
    """

    def __init__(
        self,
        sources: Sources,
        budget: float,
        engine: Engine,
        ages: int | IntArray = 40,
        thresholds: tuple[float, ...] | None = None,
        utility: Distribution | None = None,
    ) -> None:
        check_positive("budget", budget, "budget units / step")
        if engine.discipline != "fifo" or engine.capacity is None:
            raise ValueError(
                f"the engine is {engine!r}; the exact optimum is known for discipline='fifo' and a "
                "finite capacity"
            )
        self.sources, self.budget, self.engine = sources, budget, engine
        self.ages = np.broadcast_to(ages, (len(sources),)).astype(int)
        self.thresholds = (engine.threshold,) if thresholds is None else tuple(thresholds)
        self.actions = maximal_subsets(sources.cost, budget)
        self.service = service_of(engine)
        self._utility = Exponential() if utility is None else utility
        self._capacity = engine.capacity
        self._longest = engine.capacity + int(self.service.places.max())  # before service
        self._served = served(self.service, self._capacity, self._longest)
        self._survival = kept_at_place(
            self.service, self._capacity, self._longest, sources.retention
        )[:, :, None]
        # For every (threshold, action): what the action credits, and where the queue goes.
        self._choices = [
            (action, *self._outcome(action, level))
            for level in self.thresholds
            for action in self.actions
        ]

    # ------------------------------------------------------------------------------- results

    def optimum(self, tolerance: float = 1e-9) -> tuple[float, IntArray]:
        """Return the largest long-run reward per step, to a relative tolerance, and the best choice
        in every state, (F, ages…, K + 1): the number of the subset in `actions`, plus their number
        times that of the threshold.
        """
        value, low, high = relative_values(
            lambda value: self._improve(value)[0], self.shape, tolerance
        )
        return 0.5 * (low + high), self._improve(value)[1]

    def _improve(self, value: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return the value of the best choice in every state, and its number."""
        worth = np.full(self.shape, -np.inf)
        best = np.zeros(self.shape, dtype=int)
        for number, one in enumerate(self._choices):
            candidate = self._worth(value, *one)
            better = candidate > worth
            worth, best = np.where(better, candidate, worth), np.where(better, number, best)
        return worth, best

    def reward(self, choice: IntArray) -> float:
        """Return the long-run reward per step of a policy that is given like the optimal one, from
        sources just crawled and an empty queue: that of a discount factor so near 1 that only the
        settled queue counts."""
        chain, credit = self._chain(choice)
        reachable = sparse.csgraph.breadth_first_order(chain.T, 0, return_predecessors=False)
        chain, credit = chain[reachable][:, reachable], credit[reachable]
        system = sparse.identity(credit.size, format="csc") - (1.0 - _EARLY) * chain.tocsc()
        start = np.zeros(credit.size)
        start[0] = _EARLY
        return float(sparse.linalg.spsolve(system, start) @ credit)

    def _chain(self, choice: IntArray) -> tuple[sparse.csr_matrix, FloatArray]:
        """Return the transposed transition matrix of a policy, and the credit, (states,)."""
        states = np.indices(self.shape).reshape(len(self.shape), -1)
        phase, ages, backlog = states[0], states[1:-1], states[-1]
        choices = choice.ravel()
        credit, rows, columns, odds = np.empty(choices.size), [], [], []
        phases, capacity = self.shape[0], self._capacity
        for number, (action, utility, moves) in enumerate(self._choices):
            here = np.flatnonzero(choices == number)
            at = (phase[here], *(ages[i, here] for i in action), backlog[here])
            credit[here] = utility[at]
            after = [
                np.zeros(here.size, int) if i in action else np.minimum(a[here] + 1, most - 1)
                for i, (a, most) in enumerate(zip(ages, self.ages, strict=True))
            ]
            likely = moves[at].reshape(here.size, phases, capacity + 1)
            source, f, b = np.nonzero(likely > 0)
            rows.append(np.ravel_multi_index((f, *(a[source] for a in after), b), self.shape))
            columns.append(here[source])
            odds.append(likely[source, f, b])
        place = np.concatenate(rows), np.concatenate(columns)
        size = (choices.size, choices.size)
        return sparse.csr_matrix((np.concatenate(odds), place), size), credit

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an array over all states."""
        return (len(self.service.fractions), *self.ages.tolist(), self._capacity + 1)

    def _worth(
        self, value: FloatArray, action: tuple[int, ...], credit: FloatArray, moves: FloatArray
    ) -> FloatArray:
        """Return the value of a choice in every state: credit (F, k…, b), moves (F, k…, b, f, b'),
        over the ages of the crawled sources."""
        n = len(self.sources)
        after: Any = value  # at the ages of the next step, (f, ages of the others…, b')
        for i in reversed(range(n)):
            if i in action:
                after = after.take(0, axis=1 + i)
            else:
                older = np.minimum(np.arange(1, self.ages[i] + 1), self.ages[i] - 1)
                after = after.take(older, axis=1 + i)
        others = after.shape[1:-1]
        columns = np.moveaxis(after, -1, 1).reshape(after.shape[0] * after.shape[-1], -1)
        shape = credit.shape
        later = (moves.reshape(-1, columns.shape[0]) @ columns).reshape(*shape, -1)
        # (F, ages of the action…, b, ages of the others…)
        worth = (credit[..., None] + later).reshape(*shape, *others)
        rest = [i for i in range(n) if i not in action]
        axes = [0] * (n + 2)
        for position, i in enumerate(action):
            axes[1 + i] = 1 + position
        for position, i in enumerate(rest):
            axes[1 + i] = 2 + len(action) + position
        axes[-1] = 1 + len(action)
        return worth.transpose(axes)

    # ------------------------------------------------------------------------------ outcomes

    def _outcome(self, action: tuple[int, ...], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the expected credit (F, k…, b) and the moves (F, k…, b, f·b')."""
        phases, capacity, longest = len(self.service.fractions), self._capacity, self._longest
        # Probability of each queue length before service, (k…, b, L + 1), and credits.
        lengths = np.eye(capacity + 1, longest + 1)
        credit = np.zeros((phases, capacity + 1))
        for i in action:
            transition, worth = self._items(i, level)
            gain = np.einsum("...bq,kqj,fqj->f...kb", lengths, worth, self._survival[i])
            credit = credit[..., None, :] + gain
            lengths = np.einsum("...bq,kqr->...kbr", lengths, transition)
        moves = np.einsum("...br,frgc->f...bgc", lengths, self._served)
        return credit, moves

    def _items(self, i: int, level: float) -> tuple[FloatArray, FloatArray]:
        """Return, for source i at every age k and a queue of q items, the probability of a queue of
        r items after its own have joined, (k, q, r), and the utility with which one joins the queue
        as number 1 … L, (k, q, L)."""
        longest, ages = self._longest, int(self.ages[i])
        number, utility, _ = joining(self.sources, i, ages, longest, level, self._utility)
        counts = stats.poisson.pmf(np.arange(longest + 1), number[:, None])
        transition = np.zeros((ages, longest + 1, longest + 1))
        credit = np.zeros((ages, longest + 1, longest))
        for q in range(longest + 1):
            transition[:, q, q:] = counts[:, : longest + 1 - q]
            transition[:, q, longest] += 1.0 - transition[:, q].sum(axis=-1)
            credit[:, q, q:] = utility[:, : longest - q]
        return transition, credit
