"""`AdaptiveFleetScheduler`: arrival rates learnt from the numbers of items that crawls find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.inference.rates import MOST_ITEMS, Posterior, check_prior, weak_prior
from agents.scheduling import age_index
from agents.scheduling.age_index import NEVER, Columns, Parameters
from agents.scheduling.scheduler import FleetScheduler, check_columns
from crawl_env.errors import as_array, check_range, check_within
from crawl_env.files.arrays import Array
from crawl_env.numerics import IntArray

CERTAINTY, THOMPSON = "adaptive-certainty", "adaptive-thompson"


class AdaptiveFleetScheduler(FleetScheduler):
    """A `FleetScheduler` by the Whittle index, with arrival rates that it learns.

    Every source has a Gamma posterior of its rate: n items found after a gap of k steps add n to
    its shape and kT to its rate (`agents.inference.GammaPoisson`). The index uses the
    posterior mean ("adaptive-certainty"), or a draw from the posterior ("adaptive-thompson"), which
    is made at each crawl, and once per round of N C̄/M steps otherwise, C̄ the mean cost. Selections
    are those of the agents of these names, with the numbers of a source in single precision.

    Arguments:
        columns: the fleet; `arrival_rate` is not used.
        budget: M, budget units / step.
        policy: "adaptive-certainty" or "adaptive-thompson".
        prior: shape and rate (time) of the prior of all sources; default
            `agents.inference.weak_prior(T)`.
        retention: ρ in (0, 1], the weight of past observations after one step. Observations are
            discounted when a source is crawled; until then its posterior stays as it is.
        start, budget_rule, multiplier, per_host, seed: as for `FleetScheduler`; under the rule
            "average" a multiplier must be given, since that of the prior is not that of the fleet.

    Memory beyond the columns that are used (mean utility and decay rate, 8 bytes): 16.2 bytes a
    source, and 4 more for draws.

    Raises:
        ValueError: an argument is out of range.

    >>> from crawl_env import Sources
    >>> from crawl_env.fleet.columns import FleetColumns
    >>> fleet = FleetColumns.of(Sources.preset("table1"))
    >>> scheduler = AdaptiveFleetScheduler(fleet, 2, "adaptive-certainty")
    >>> picked = scheduler.step()
    >>> scheduler.report(counts=[0, 30])
    >>> scheduler.posterior([0, 1]).mean.round(2)
    array([ 0.5, 30.2])
    """

    policies: ClassVar[Mapping[str, int]] = {
        CERTAINTY: age_index.WHITTLE,
        THOMPSON: age_index.WHITTLE,
    }

    def __init__(
        self,
        columns: Columns,
        budget: float,
        policy: str = THOMPSON,
        *,
        prior: Posterior | None = None,
        retention: float = 1.0,
        start: str | ArrayLike = "fresh",
        budget_rule: str = "step",
        multiplier: float | None = None,
        per_host: int | None = None,
        seed: int = 0,
    ) -> None:
        check_columns(columns)
        self.prior = weak_prior(columns.period) if prior is None else prior
        check_prior(self.prior, most=0)
        self.retention = check_within("retention", retention, 0.0, 1.0, open_low=True)
        if budget_rule == "average" and multiplier is None:
            raise ValueError(
                "budget_rule is 'average' and no multiplier is given; the scheduler does not know "
                "the rates that determine it"
            )
        super().__init__(
            columns,
            budget,
            policy,
            start=start,
            budget_rule=budget_rule,
            multiplier=multiplier,
            per_host=per_host,
            seed=seed,
        )

    def report(self, *, counts: ArrayLike | None = None, failed: ArrayLike | None = None) -> None:
        """Report the results of the crawls of the last step, before the next step.

        Arguments:
            counts: (K,) number of new items found. Those of failed crawls, and of sources never
                crawled before, of which the time is unknown, are ignored.
            failed: (K,) whether each crawl failed.

        Raises:
            ValueError: an array does not have one element per crawl of the last step, or a count is
                negative, not finite or above 10⁹.
        """
        if counts is None:
            super().report(failed=failed)
            return
        new = as_array("counts", self._per_crawl("counts", counts))
        check_range("counts", new, 0.0, MOST_ITEMS, element="crawl")
        super().report(failed=failed)
        mask = self.ages < NEVER
        if self._failed.size:
            mask &= ~self._failed
        source, gap = self._picks.source[: len(mask)][mask], self.ages[mask].astype(np.float64)
        items, exposure = self._parameters.items, self._parameters.exposure
        fade = self.retention**gap
        items[source] = fade * items[source] + new[mask]
        exposure[source] = fade * exposure[source] + gap

    def posterior(self, sources: ArrayLike) -> Posterior:
        """Return the posterior of the arrival rates of some sources, (K,) each.

        Raises:
            IndexError: there is no such source, or the numbers are not whole.
        """
        which: IntArray = np.arange(self.n)[np.asarray(sources)]
        p = self._parameters
        exposure = p.exposure[which].astype(np.float64) * p.period
        return Posterior(p.prior_shape + p.items[which].astype(np.float64), p.prior_rate + exposure)

    def _state(self) -> dict[str, Any]:
        p = self._parameters
        arrays = {"items": p.items, "exposure": p.exposure, "drawn": p.drawn}
        return {**super()._state(), **arrays}

    def _declared(self, steps: int) -> dict[str, Array]:
        p, array = self._parameters, Array(np.float32, ("N",), 0.0)
        draws = array._replace(shape=p.drawn.shape)
        return {**super()._declared(steps), "items": array, "exposure": array, "drawn": draws}

    def _continue(self, state: Mapping[str, Any]) -> None:
        for name in ("items", "exposure", "drawn"):
            getattr(self._parameters, name)[...] = state[name]
        super()._continue(state)

    def _arguments(self) -> dict[str, Any]:
        shape, rate = float(self.prior.shape), float(self.prior.rate)
        return {**super()._arguments(), "prior": [shape, rate], "retention": self.retention}

    @classmethod
    def _restored(cls, columns: Columns, arguments: dict[str, Any], start: str) -> Self:
        shape, rate = arguments.pop("prior")
        prior = Posterior(np.array(shape), np.array(rate))
        return cls(columns, **arguments, prior=prior, start=start)

    def _bind(self, columns: Columns) -> Parameters:
        draws = self.n if self.policy == THOMPSON else 0
        return (
            super()
            ._bind(columns)
            ._replace(
                items=np.zeros(self.n, np.float32),
                exposure=np.zeros(self.n, np.float32),
                drawn=np.zeros(draws, np.float32),
                prior_shape=float(self.prior.shape),
                prior_rate=float(self.prior.rate),
            )
        )

    def _begin(self, crawled_at: NDArray[np.uint32], tried_at: NDArray[np.uint32]) -> None:
        super()._begin(crawled_at, tried_at)
        if self.policy == THOMPSON:
            cost = self._parameters.cost
            mean = float(cost.mean(dtype=np.float64)) if cost.size else 1.0
            turns = max(1, int(np.ceil(self.n * mean / self.budget)))
            self._crawls = self._crawls._replace(turns=turns)
            if self.steps == 0:
                age_index.draw_rates(self._parameters, self._draw_seed, self._now)
