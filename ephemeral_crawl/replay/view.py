"""Statistics of a replay: sums over blocks of time, and differences with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env.log.clock import HOURS
from crawl_env.numerics import BoolArray, FloatArray
from ephemeral_crawl.replay.play import Replay
from ephemeral_crawl.replay.split import WEEK, Split

FEWEST = 5  # blocks of which an interval is given

_CYCLE = 1.3  # ratio of busy to quiet hours above which they are reported separately

Runs = Mapping[str, Replay]


class View(NamedTuple):
    """The statistics of runs on a replayed log."""

    split: Split
    block: int  # steps over which sums are compared; the last block may be shorter
    runs: int  # S, of each policy

    @property
    def steps(self) -> int:
        return self.split.steps

    @property
    def published(self) -> FloatArray:
        return self.split.published

    @property
    def blocks(self) -> int:
        """Return W, the number of blocks."""
        return -(-self.steps // self.block)

    @property
    def block_name(self) -> str:
        """Return the name of a block."""
        unit, length = self.split.rest.unit, self.block * self.split.fleet.period
        return "week" if length * HOURS[unit] == WEEK else f"{length:g}-{unit} block"

    def by_block(self, of_steps: FloatArray) -> FloatArray:
        """Return sums over blocks, (…, W), of values at every step, (…, H)."""
        return np.add.reduceat(of_steps, np.arange(0, self.steps, self.block), axis=-1)

    def lead(self, run: Replay, other: Replay) -> Estimate:
        """Return the difference of two policies as a fraction of the published utility."""
        return self._ratio(run.reward - other.reward, self.published)

    def gain(self, run: Replay, other: Replay, level: float = 0.95) -> Estimate:
        """Return the difference of two policies as a fraction of the other's reward.

        Arguments:
            level: of the interval.
        """
        return self._ratio(run.reward - other.reward, other.reward, level)

    def _ratio(self, part: FloatArray, whole: FloatArray, level: float = 0.95) -> Estimate:
        """Return Σ part / Σ whole, (S, H) or (H,), with its interval of that level.

        The variance has two parts, of blocks and of runs, estimated from the means of residuals
        over the other; Student's t has Satterthwaite's number of degrees of freedom.
        """
        if not whole.sum() > 0:
            return statistics.UNKNOWN
        x = self.by_block(part)
        y = np.broadcast_to(self.by_block(whole), x.shape)
        ratio = float(x.sum() / y.sum())
        residual = (x - ratio * y) / y.mean()
        variances = [
            (means.var(ddof=1) / means.size, means.size - 1)
            for means in (residual.mean(axis=0), residual.mean(axis=1))
            if means.size > 1
        ]
        if self.blocks < FEWEST:
            return Estimate(ratio, float("nan"), float("nan"))
        variance = sum(v for v, _ in variances)
        if not variance > 0:
            return Estimate(ratio, ratio, ratio)
        degrees = int(variance**2 / sum(v**2 / n for v, n in variances) + 1e-9)
        error = statistics.t_quantile(0.5 + level / 2, degrees) * float(np.sqrt(variance))
        return Estimate(ratio, ratio - error, ratio + error)


def busy_and_quiet(view: View) -> tuple[BoolArray, BoolArray] | None:
    """Return which steps lie in the busiest and in the quietest quarter of the day, according to
    the log before the split; None if steps do not divide a day, or the hours hardly differ."""
    log, past, period = view.split.rest, view.split.past, view.split.fleet.period
    day = round(24 / HOURS[log.unit] / period, 9)  # steps
    if day != round(day) or day < 4 or view.steps < 7 * day:
        return None
    hour = np.floor((past.published - log.start) / period).astype(np.intp) % int(day)
    order = np.argsort(np.bincount(hour, minlength=int(day)), kind="stable")
    now, quarter = np.arange(view.steps) % int(day), int(day) // 4
    quiet, busy = np.isin(now, order[:quarter]), np.isin(now, order[-quarter:])
    published = view.published
    if not published[busy].sum() > _CYCLE * published[quiet].sum() > 0:
        return None
    return busy, quiet


def records(
    view: View,
    runs: Mapping[float, Runs],
    common: Mapping[str, Any],
    bounds: Mapping[float, float] | None = None,
) -> list[dict[str, Any]]:
    """Return one row for every budget, policy and block.

    Arguments:
        common: values that every row has.
        bounds: upper bounds on the utility collected, which have a row for every budget.
    """
    rest, period = view.split.rest, view.split.fleet.period
    published = view.by_block(view.published)

    def row(m: float, name: str, block: object, at: float, *utility: float) -> dict[str, Any]:
        reward, of_all = (repr(float(x)) for x in utility)
        where = {"budget": m, "agent": name, "block": block, "from": repr(float(at))}
        return {**common, **where, "reward": reward, "published": of_all}

    rows = []
    for m, of_budget in runs.items():
        rows += [
            row(m, name, w, rest.start + w * view.block * period, reward, published[w])
            for name, run in of_budget.items()
            for w, reward in enumerate(view.by_block(run.reward.mean(axis=0)))
        ]
        if bounds is not None:
            rows.append(row(m, "hindsight-bound", "all", rest.start, bounds[m], published.sum()))
    return rows
