"""What is lost under which law of decay: tables, pictures, records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from crawl_env.numerics import FloatArray
from experiments.core import plots
from experiments.core.report import Report
from experiments.core.runner import Job, Result
from experiments.core.tables import fraction, percent
from experiments.decay.laws import EXPONENTIAL, LAWS, LOMAX, STRETCHED, Named, label
from experiments.decay.runs import FITTED, KNOWING, RIGHT_MEAN

USUAL = 10  # crawls an epoch for 100 sources
BUDGETS = (2, USUAL, 30)
# Of random fleets: a name, the fleet, whether it is seen.
SEEN_LAWS = (EXPONENTIAL, STRETCHED[0], *STRETCHED[2:], LOMAX[1], *LOMAX[3:])
CASES = (
    ("not seen", "dense", False),
    ("seen, dense", "dense", True),
    ("seen, sparse", "sparse", True),
)
_TASK = ("fleet", "budget", "observed", "drawn", "law", "policy")


class Done:
    """The results of all units."""

    def __init__(self, units: Sequence[Job], results: Sequence[Result]) -> None:
        self._units, self._results = units, results
        self._found = {
            _key(*(unit[name] for name in _TASK)): result
            for unit, result in zip(units, results, strict=True)
        }

    def reward(
        self, fleet: str, m: int, seen: bool, law: Named, policy: str, drawn: bool | None = None
    ) -> FloatArray:
        """Return the reward per epoch of each run, (S,); drawn where seen, unless said."""
        drawn = seen if drawn is None else drawn
        return np.array(self._found[_key(fleet, m, seen, drawn, law, policy)]["reward"])

    def bound(self, fleet: str, m: int, law: Named) -> FloatArray:
        """Return the bound of a crawler that does not see, of each run, (S,)."""
        return np.array(self._found[_key(fleet, m, False, False, law, KNOWING)]["bound"])

    def loss(self, fleet: str, m: int, seen: bool, law: Named, policy: str) -> Estimate:
        """Return the share that a policy loses against the one that knows the decay."""
        found = statistics.loss(
            self.reward(fleet, m, seen, law, policy), self.reward(fleet, m, seen, law, KNOWING)
        )
        if fleet == "table1" and not seen:  # nothing is random: one run is all
            return Estimate(found.mean, found.mean, found.mean)
        return found

    def worst(self, fleet: str, seen: bool, policy: str) -> tuple[float, Named, int]:
        """Return the largest mean loss, under which law and budget it is lost."""
        laws = SEEN_LAWS if seen else LAWS
        losses = [
            (self.loss(fleet, m, seen, law, policy).mean, law, m) for law in laws for m in BUDGETS
        ]
        return max(losses, key=lambda loss: loss[0])

    def records(self) -> Iterator[dict[str, Any]]:
        for unit, result in zip(self._units, self._results, strict=True):
            for run, reward in enumerate(result["reward"]):
                yield {
                    **{name: unit[name] for name in _TASK if name != "law"},
                    "law": label(unit["law"]),
                    "seed": unit["seed"],
                    "run": run,
                    "reward": repr(reward),
                    "bound": repr(result["bound"][run]) if "bound" in result else "",
                }


def _key(fleet: str, m: int, seen: bool, drawn: bool, law: Named, policy: str) -> tuple[Any, ...]:
    return fleet, m, seen, drawn, label(law), policy


def unseen(report: Report, done: Done) -> None:
    report.heading("Content is not seen before crawling")
    report.paragraph(
        "Random fleets of 100 sources, another one in each run. Ages alone decide then, so what "
        "each crawl brings is taken at its expectation, u*∫R over the age: nothing is drawn. "
        "Dense and sparse fleets differ in the scale of Λ alone and lose the same share. Bound: "
        "relaxed, exact for the law of decay; no policy that does not see exceeds it. Loss: "
        f"share of the reward of “{KNOWING}”, with 95 % intervals (Fieller, over fleets)."
    )
    for m in BUDGETS:
        _table(report, done, f"N = 100, M = {m}", "dense", m)
    report.heading("Table 1 of the paper, not seen")
    report.paragraph("Four sources and few crawls: which cycle they fall into decides.")
    for m in (1, 2, 3):
        _table(report, done, f"Table 1, M = {m}", "table1", m)


def _table(report: Report, done: Done, caption: str, fleet: str, m: int) -> None:
    others = ("static", "myopic", "oldest-first", "random")
    rows = []
    for law in LAWS:
        best = fraction(done.reward(fleet, m, False, law, KNOWING), done.bound(fleet, m, law))
        rows.append(
            [
                label(law),
                percent(best),
                *(percent(done.loss(fleet, m, False, law, p)) for p in (RIGHT_MEAN, FITTED)),
                *(f"{done.loss(fleet, m, False, law, p).mean:.1%}" for p in others),
            ]
        )
    columns = ["law", "knows the decay, share of bound", "loss, right mean life", "loss, fitted"]
    report.table(caption, [*columns, *others], rows)


def seen(report: Report, done: Done) -> None:
    report.heading("Content is seen before crawling")
    report.paragraph(
        "The same with all that waits seen, exponential ξ, items drawn and followed one by one; "
        "“dense” has a twentieth of the items of `Sources.random`, each worth 20 times as much. "
        f"“{KNOWING}” takes the index of a source whose mean content is what waits: under no law "
        "is that exact, as what waits does not tell how old it is. No bound is known."
    )
    for name, fleet, observed in CASES[1:]:
        for m in BUDGETS:
            rows = [
                [
                    label(law),
                    statistics.number(done.reward(fleet, m, observed, law, KNOWING).mean()),
                    *(percent(done.loss(fleet, m, observed, law, p)) for p in _SHOWN),
                    *(f"{done.loss(fleet, m, observed, law, p).mean:.1%}" for p in _FLOOR),
                ]
                for law in SEEN_LAWS
            ]
            columns = ["law", "knows, reward", "loss, right mean life", "loss, fitted", "myopic"]
            report.table(f"{name}, N = 100, M = {m}", [*columns, *_FLOOR], rows)


_SHOWN, _FLOOR = (RIGHT_MEAN, FITTED, "myopic"), ("random",)


def check(report: Report, done: Done, laws: Sequence[Named]) -> None:
    report.heading("Drawn, and a crawler without parameters")
    report.paragraph(
        f"Not seen, N = 100, M = {USUAL}, as above but with items drawn. Drawn / expected is of "
        "the same crawls but for the shorter run. nutch knows neither rates nor decay and adapts "
        "to what its crawls brought."
    )
    rows = []
    for law in laws:
        bound = done.bound("dense", USUAL, law)
        drawn = done.reward("dense", USUAL, False, law, RIGHT_MEAN, drawn=True)
        mean = done.reward("dense", USUAL, False, law, RIGHT_MEAN)
        nutch = done.reward("dense", USUAL, False, law, "nutch", drawn=True)
        rows.append([label(law), percent(fraction(drawn, mean)), percent(fraction(nutch, bound))])
    columns = ["law", f"{RIGHT_MEAN}: drawn / expected", "nutch, share of bound"]
    report.table("Items drawn", columns, rows)


def picture(done: Done) -> Any:
    figure, axes = plots.new(2, 3, width=12, height=3.1, sharex=True, sharey=True)
    order = (*reversed(STRETCHED), EXPONENTIAL, *LOMAX)
    for row, (belief, policy) in enumerate(_BELIEFS):
        for axis, (name, fleet, observed) in zip(axes[row], CASES, strict=True):
            tried = [law for law in order if not observed or law in SEEN_LAWS]
            place = [order.index(law) for law in tried]
            for i, m in enumerate(BUDGETS):
                found = [done.loss(fleet, m, observed, law, policy) for law in tried]
                middle = np.array([100 * e.mean for e in found])
                spread = np.array([[e.mean - e.low, e.high - e.mean] for e in found]).T
                axis.errorbar(
                    place,
                    middle,
                    yerr=100 * np.maximum(spread, 0),
                    fmt="o-",
                    ms=3.5,
                    lw=1.2,
                    color=plots.PALETTE[i],
                    label=f"M = {m}",
                )
            axis.axhline(0, color="#888", lw=0.8)
            axis.set_title(f"{belief}; {name}")
        axes[row][0].set_ylabel("loss, %")
    for axis in axes[1]:
        axis.set_xticks(
            range(len(order)), [label(law) for law in order], rotation=60, ha="right", size=8
        )
    axes[0][0].legend()
    return figure


_BELIEFS = (("right mean life", RIGHT_MEAN), ("fitted", FITTED))


def summary(report: Report, done: Done) -> None:
    lines = [
        f"{name}: right mean life {_worst(done, fleet, observed, RIGHT_MEAN)}; "
        f"fitted {_worst(done, fleet, observed, FITTED)}."
        for name, fleet, observed in CASES
    ]
    mild = [("stretched", (0.8,)), ("lomax", (4.0,))]
    usual = max(
        done.loss(fleet, m, observed, law, policy).mean
        for _, fleet, observed in CASES
        for m in BUDGETS
        for law in mild
        for policy in (RIGHT_MEAN, FITTED)
    )
    report.paragraph(
        "The agents of this project believe that interest decays exponentially. Here it does not, "
        "and they are compared with one who knows the law, on the same arrivals: once with the "
        "right mean life (so that u* is right), once with the exponential that `experiments fit` "
        "would find. Largest mean losses, with the law and the budget out of N = 100 at which "
        "they occur:"
    )
    for line in lines:
        report.paragraph(line)
    report.paragraph(
        f"Close to the exponential (β ≥ .8, k ≥ 4) the loss is at most {usual:.1%}. It matters "
        "where interest lasts long after a fast start (β ≤ .5, k ≤ 2) and crawls are scarce. "
        "Where they nearly suffice for all that is published, a seen fleet loses nothing: the "
        "order of the crawls no longer matters. "
        f"Fitting beats the right mean life in {_better(done)} of {len(_cases())} random cases "
        "with another law. It follows the fast beginning, and is wrong about u*, which decides "
        "whether a source is crawled at all: where it is the worse one, few crawls go to few "
        "sources."
    )
    report.figure(
        picture(done),
        "Loss of an exponential belief against knowing the law, N = 100, with 95 % intervals; "
        "left of the middle stretched exponentials, right of it power laws.",
    )


def _worst(done: Done, fleet: str, observed: bool, policy: str) -> str:
    loss, law, m = done.worst(fleet, observed, policy)
    return f"{loss:.1%} ({label(law)}, M = {m})"


def _cases() -> list[tuple[str, int, bool, Named]]:
    return [
        (fleet, m, observed, law)
        for _, fleet, observed in CASES
        for m in BUDGETS
        for law in (SEEN_LAWS if observed else LAWS)
        if law != EXPONENTIAL
    ]


def _better(done: Done) -> int:
    """Return in how many cases the fitted exponential earns more than the right mean life."""
    return sum(
        done.reward(*case, FITTED).mean() > done.reward(*case, RIGHT_MEAN).mean()
        for case in _cases()
    )
