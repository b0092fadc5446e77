"""Sentences that the reports of `evaluate` and `replay` share."""

from __future__ import annotations

from ephemeral_crawl.comparison.present import Equal
from ephemeral_crawl.comparison.schedule import Schedule

# A description of the policies for the reports.
POLICIES = (
    "whittle crawls the sources of the largest Whittle index; whittle-exact uses the index of "
    "random content that is observed. myopic maximises the reward of the next step per unit of "
    "cost; oldest-first crawls the sources in turn; fixed always crawls the same sources, those "
    "of the largest expected utility per unit of cost; random selects them at random. lagrangian "
    "crawls the sources whose index exceeds the optimal Lagrange multiplier λ*; static crawls "
    "every source at its own optimal constant frequency. nutch and miniflux are scheduling rules "
    "of existing crawlers, based on the results of their own crawls only: the crawl interval of "
    "nutch shrinks by a fifth after a crawl that found new items and grows by two fifths "
    "otherwise; that of miniflux is a week divided by the number of items of the week, with a "
    "step in place of an hour. Policies whose names begin with adaptive- are not given the "
    "arrival rates and estimate them from their crawls: certainty uses the posterior means, "
    "optimism upper confidence bounds, thompson draws from the posterior; self-tuning estimates "
    "utilities and decay as well. clairvoyant, where listed, is whittle with observed content: a "
    "reference that cannot be used in practice. In a program, agents.index_at_age(age, sources) "
    "returns the index by which whittle ranks the sources."
)


def share(part: float, whole: float) -> str:
    """Return a fraction in per cent, or "n/a"."""
    return f"{part / whole:.0%}" if whole > 0 else "n/a"


def at_equal_utility(same: Equal | None) -> str:
    """Return the end of a sentence on the fetches saved at the same utility, or ""."""
    if same is None or same.verified < 0.005:
        return ""
    return f", or at least as much with {same.verified:.0%} fewer fetches"


def limit(plan: Schedule, measured: float | None) -> str:
    """Return a sentence on what the maximum interval costs.

    Arguments:
        measured: the fraction of the reward that was lost when both schedules were played.
    """
    period = plan.task.sources.period
    late = plan.free.interval > plan.longest
    never = plan.free.crawls == 0
    text = (
        f"A maximum interval of {plan.longest * period:g} costs {plan.price:.2%} of the utility: "
        f"{int((late & ~never).sum())} sources would otherwise be crawled less often, and "
        f"{int(never.sum())} never."
    )
    if measured is not None:
        text += f" Played, the schedule with the limit collects {measured:.2%} less than without."
    return text
