"""Sentences that the reports of `evaluate` and `replay` share."""

from __future__ import annotations

from agents.evaluation.statistics import Estimate, number
from ephemeral_crawl.comparison.present import Equal, Present
from ephemeral_crawl.comparison.schedule import Schedule
from ephemeral_crawl.core.tables import REFERENCE

# A description of the policies for the reports.
POLICIES = (
    "whittle crawls the sources of the largest Whittle index; whittle-exact uses the index of "
    "random content that is observed or announced by signals. myopic maximises the reward of the "
    "next step per unit of cost; oldest-first crawls the sources in turn; fixed always crawls the "
    "same sources, those of the largest expected utility per unit of cost; random selects them at "
    "random. lagrangian crawls the sources whose index exceeds the optimal Lagrange multiplier "
    "λ*; static crawls every source at its own optimal constant frequency. nutch and miniflux are "
    "scheduling rules of existing crawlers, based on the results of their own crawls only: the "
    "crawl interval of nutch shrinks by a fifth after a crawl that found new items and grows by "
    "two fifths otherwise; that of miniflux is a week divided by the number of items of the week, "
    "with a step in place of an hour. Policies whose names begin with adaptive- are not given the "
    "arrival rates and estimate them from their crawls: certainty uses the posterior means, "
    "optimism upper confidence bounds, thompson draws from the posterior; self-tuning estimates "
    "utilities and decay as well. clairvoyant, where listed, is whittle with observed content: a "
    "reference that cannot be used in practice. ping-first, which joins if sources send signals, "
    "fetches whatever pinged, and the other sources in turn. In a program, "
    "agents.index_at_age(age, sources) returns the index by which whittle ranks the sources."
)


def share(part: float, whole: float) -> str:
    """Return a fraction in per cent, or "n/a"."""
    return f"{part / whole:.0%}" if whole > 0 else "n/a"


def collects(best: str, part: float, whole: float, budget: float, before: str | None) -> str:
    """Return the begin of a sentence on what the best policy collects under a budget.

    Arguments:
        before: the best policy of the budget before, which the sentence is already about; None
            for the first.
    """
    fraction = f"{share(part, whole)} with"
    if before is None:
        return f"{best} collects {fraction} a budget of {budget:g} per step"
    return f"{fraction} {budget:g}" if best == before else f"{best} {fraction} {budget:g}"


def against(
    gain: Estimate | None,
    rule: Present | None,
    same: Equal | None,
    best: str,
    again: bool = False,
) -> str:
    """Return the end of a sentence that compares with the present rule, or ""

    Arguments:
        gain: of the best policy over the rule it is compared with, as a fraction, under the same
            budget; None if there is none. Nothing is claimed if its interval contains 0.
        rule: the present rule, or None: then it is crawling all sources in turn.
        same: where whittle collects as much as the present rule.
        best: the best policy, which the sentence is about.
        again: the sentence has already said what it is compared with.
    """
    words = "your present rule" if rule else "crawling all sources in turn"
    text = ""
    if gain is not None:
        text = ", which does not differ significantly" + ("" if again else f" from {words}")
        if gain.excludes(0.0):
            text = f", {abs(gain.mean):.0%} {'more' if gain.mean > 0 else 'less'}"
            text += "" if again else f" than {words}"
    if rule is None:
        return text
    if same is None:
        return f"{text} (it is not certain that whittle collects as much under the same budget)"
    if rule.rates is not None:
        ahead = same.same.reward / same.present.reward - 1 if same.present.reward > 0 else 0.0
        text += (
            f"; your present rule costs {same.present.cost:.3g} per step, and with "
            f"{same.same.cost:.3g} whittle collects {ahead:.0%} more than that rule"
        )
    if same.fewer < 0.005:
        return text
    who = "" if best == REFERENCE else f"{REFERENCE} collects "
    return f"{text}, or {who}at least as much with {same.fewer:.0%} fewer fetches"


def equal_utility(name: str, same: Equal) -> str:
    """Return sentences on the present rule, and on the budget at which whittle equals it."""
    return (
        f"Your present rule ({name}) collects {number(same.present.reward)} per step for a cost of "
        f"{same.present.cost:.4g} per step. With a budget of {same.same.budget:.4g} whittle "
        f"collects {number(same.same.reward)}. With a budget of {same.run.budget:.4g} it spends "
        f"{same.run.cost:.4g} ({same.fewer:.1%} less) and collects {number(same.run.reward)}: the "
        "smallest budget found with which it collects at least as much as your present rule, with "
        "95 % confidence on the same arrivals."
    )


def limit(plan: Schedule, measured: float | None) -> str:
    """Return a sentence on what the maximum interval costs.

    Arguments:
        measured: the fraction of the reward that was lost when both schedules were played.
    """
    period = plan.task.sources.period
    late = plan.free.interval > plan.longest
    never = plan.free.crawls == 0
    others = int((late & ~never).sum())
    text = (
        f"A maximum interval of {plan.longest * period:g} costs {plan.price:.2%} of the utility: "
        f"{others} source{'s' * (others != 1)} would otherwise be crawled less often, and "
        f"{int(never.sum())} never."
    )
    if measured is not None:
        text += f" Played, the schedule with the limit collects {measured:.2%} less than without."
    return text + " The policies in the table below keep to no maximum interval."
