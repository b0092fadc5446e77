"""Agents that estimate the parameters of the sources while they crawl.

They use only information that a crawler has (`KnownParameters`): T, M, the costs of crawls, and the
results of their crawls. In each step they crawl by the Whittle index of a planning model, which is
made from the current estimates. If content is unobserved, this is the index at the source's age,
with u* = Λ̂ξ̄/μ. A source that was never crawled has the prior.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.base import (
    LEAST,
    NUMBER,
    Adaptive,
    PlanningModel,
    RateDraws,
    UnitArms,
)
from agents.inference.content import ContentEstimator, Harvests, HarvestSums
from agents.inference.pings import Quality, SignalQuality
from agents.inference.rates import CrawlOutcome, Estimator, copy_to_change
from agents.policies.base import Environment, ObservationView, State, needs
from crawl_env import task_of
from crawl_env.errors import check_within
from crawl_env.numerics import FloatArray, IntArray

_LEAST_UTILITY = 1e-100


class Certainty(Adaptive):
    """Certainty equivalence: plans with the posterior means of the rates.

    Without exploration, it may never return to a source whose first crawls found little, and then
    cannot correct its estimate.
    """

    name = "adaptive-certainty"

    def plan(
        self, view: ObservationView, rates: State, fresh: IntArray, state: State
    ) -> PlanningModel:
        arms = self._unit_arms(view)
        if isinstance(self.estimator, SignalQuality):
            quality = self.estimator.quality(rates)
            return PlanningModel(quality.rate, arms, state, quality)
        return PlanningModel(self.estimator.posterior(rates).mean, arms, state)


class Optimism(Adaptive):
    """Optimism in the face of uncertainty: plans with an upper quantile of each rate's posterior.

    Sources of uncertain rate are crawled until the posterior is narrower (UCWhittle, AAAI 2023,
    with the exact posterior in place of its confidence bounds).

    Arguments:
        env, seed, estimator: see `Adaptive`.
        confidence: probability of the quantile, in [.5, 1).
    """

    name = "adaptive-optimism"

    def __init__(
        self,
        env: Environment,
        *,
        seed: int | None = None,
        estimator: Estimator | str | None = None,
        confidence: float = 0.9,
    ) -> None:
        super().__init__(env, seed=seed, estimator=estimator)
        self.confidence = check_within("confidence", confidence, 0.5, 1.0, open_high=True)

    def plan(
        self, view: ObservationView, rates: State, fresh: IntArray, state: State
    ) -> PlanningModel:
        arms, posterior = self._unit_arms(view), self.estimator.posterior(rates)
        rate, quality = posterior.quantile(self.confidence), None
        if isinstance(self.estimator, SignalQuality):
            quality = self.estimator.quality(rates).scaled(rate / posterior.mean)
        return PlanningModel(rate, arms, state, quality)


class Thompson(Adaptive):
    """Thompson sampling: plans with rates drawn from their posteriors.

    A draw is kept until the source is crawled, or until its turn, which comes once per round. If it
    were kept until the next crawl only, a low draw could postpone that crawl for ever; if rates
    were redrawn in every step, a source would be crawled as soon as one of many draws is high.
    """

    name = "adaptive-thompson"

    def begin_plan(self, shape: tuple[int, int]) -> State:
        return self.begin_draws(shape)

    def plan(
        self, view: ObservationView, rates: State, fresh: IntArray, state: State
    ) -> PlanningModel:
        draws = self.redrawn(state, rates, fresh)
        return model_of(draws, self._unit_arms(view), draws)


def model_of(draws: RateDraws | Quality, arms: UnitArms, state: State) -> PlanningModel:
    """Return the model of drawn rates, and of the quality of the signals if it was drawn too."""
    return PlanningModel(draws.rate, arms, state, draws if isinstance(draws, Quality) else None)


class TuningState(NamedTuple):
    """The state of `SelfTuning.plan`."""

    drawn: RateDraws | Quality
    utility: FloatArray  # (B, N) ξ̄ of the model; 0 where there is none
    decay: FloatArray  # (B, N) μ of the model, 1 / time
    content: State  # of the estimator of ξ̄ and μ


class SelfTuning(Adaptive):
    """Estimates Λ, ξ̄ and μ; only T, M and the costs are known.

    Rates are drawn from their posteriors, as in `Thompson`. For ξ̄ and μ the posterior means are
    used, which explores less: a source whose first items had little utility by chance may be
    crawled rarely for a long time. ξ̄ and μ are estimated from the five sums over the items of each
    crawl if all are among the features (`HarvestSums`), and otherwise from the utility of crawls
    after gaps of different lengths (`Harvests`).

    Without item counts only the product Λξ̄ is identifiable: Λ is fixed at one item per step, the
    product is estimated as ξ̄, and no estimator of rates is used. Include both `items` and the sums
    in the features: the sums omit items whose utility has decayed to 0, so that with the sums alone
    the rates of rarely crawled sources are underestimated.

    Rates may change: if item counts are observed, the default estimator is "forgetting". ξ̄ and μ
    are assumed to be constant.

    Raises:
        ValueError: the features lack `harvest` and the sums, or include only some of the sums; or
            an estimator is given and item counts are not among the features.
    """

    name = "adaptive-self-tuning"
    _where_signalled: ClassVar[tuple[str, ...]] = (*HarvestSums.features, "items", "pings")
    parameters: ClassVar[tuple[str, ...]] = ("cost",)

    def __init__(
        self,
        env: Environment,
        *,
        seed: int | None = None,
        estimator: Estimator | str | None = None,
    ) -> None:
        task = task_of(env)
        sums = [name for name in HarvestSums.features if name in task.features]
        itemised = len(sums) == len(HarvestSums.features)
        if sums and not itemised and sums != ["harvest_number"]:
            missing = ", ".join(name for name in HarvestSums.features if name not in sums)
            raise ValueError(
                f"agent {self.name!r} needs all five sums over items or none, and the features of "
                f"the environment lack {missing}; add them to `features`"
            )
        period = task.sources.period
        has_numbers = bool(set(NUMBER) & set(task.features))
        self._content: ContentEstimator = (
            HarvestSums(period) if itemised else Harvests(period, has_numbers)
        )
        needs(task, self.name, self._content.features[0])
        signals = task.sources.is_signalled and "pings" in task.features
        if signals and (estimator is None or estimator == "signals"):
            if not itemised:
                raise ValueError(
                    f"agent {self.name!r} needs the sums over items to learn from signals: it "
                    "crawls when pings arrive, so that the utility of a crawl does not tell how "
                    f"fast items decay. Add {', '.join(HarvestSums.features)} to `features`, or "
                    "remove pings"
                )
            estimator = "signals"
        elif estimator is not None:
            needs(task, f"{self.name} with an estimator of rates", *NUMBER)
        elif has_numbers:
            estimator = "forgetting"
        super().__init__(env, seed=seed, estimator=estimator)

    def begin_plan(self, shape: tuple[int, int]) -> TuningState:
        return TuningState(
            self.begin_draws(shape), np.zeros(shape), np.zeros(shape), self._content.begin(shape)
        )

    def update_plan(
        self, view: ObservationView, outcome: CrawlOutcome, state: State
    ) -> TuningState:
        before = TuningState(*state)
        revealed = (self._at(view, name, outcome.cells) for name in self._content.features)
        content = self._content.update(before.content, outcome, *revealed)
        # Estimates made before the first items are in an arbitrary unit of utility.
        first = self._content.any_items(content) & ~self._content.any_items(before.content)
        utility = np.where(first, 0.0, before.utility) if first.any() else before.utility
        return before._replace(utility=utility, content=content)

    def has_unit(self, state: State) -> NDArray[np.bool_] | bool:
        return self._content.any_items(TuningState(*state).content)

    def _inferred(self, view: ObservationView, outcome: CrawlOutcome) -> CrawlOutcome:
        return replace(outcome, counts=outcome.gaps / self.known.period)

    def plan(
        self, view: ObservationView, rates: State, fresh: IntArray, state: State
    ) -> PlanningModel:
        before = TuningState(*state)
        draws = self.redrawn(before.drawn, rates, fresh)
        if not before.utility.all():  # some have no model since their first items
            without = before.utility.reshape(-1) == 0
            without[fresh] = True
            fresh = np.flatnonzero(without)
        utility, decay = (copy_to_change(array, fresh) for array in before[1:3])
        mean_utility, decay_rate = self._content.estimate(before.content, fresh)
        period = self.known.period
        utility.reshape(-1)[fresh] = np.clip(mean_utility, _LEAST_UTILITY, 1.0 / _LEAST_UTILITY)
        decay.reshape(-1)[fresh] = np.clip(decay_rate, LEAST / period, 1.0 / LEAST / period)
        arms = UnitArms(utility, decay, self._parameter(view, "cost"), period)
        return model_of(draws, arms, TuningState(draws, utility, decay, before.content))
