"""`python -m experiments scale`: fleets of up to 10⁹ sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import numpy as np
import tyro

from agents.evaluation.statistics import number
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import RecordedStudy, ResumableStudy, Rows, attributed
from experiments.scale.sizes import ADAPTIVE, LEARNING, POLICIES, Size, measured_apart

SIZES = (10**4, 10**5, 10**6, 10**7, 10**8)
FIXED = 1000.0  # budget that stays the same while the fleet grows
PART = 100  # the other budget is the number of sources over this


@dataclass(kw_only=True)
class Scale(RecordedStudy, ResumableStudy):
    """Measures reward, time and memory of the event-driven scheduler on fleets of 10⁴ to 10⁸ or
    more sources, beside the relaxed bound and the dense world. The budget is a hundredth of the
    sources, which keeps the work per source the same; and 1,000 crawls per step, which keeps the
    work per step the same."""

    title: ClassVar[str] = "Scale"

    sizes: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N")] = tuple(
        10**k for k in range(4, 9)
    )
    """Numbers of sources."""
    regime: Literal["sparse", "dense"] = "sparse"
    """Arrival rates of the random fleets, as in `Sources.random`."""
    largest_dense: int = 10**7
    """Largest fleet of which the dense world is timed, too."""

    def measure(self) -> dict[str, Rows]:
        cases = [(n, m) for n in self.sizes for m in dict.fromkeys((n / PART, FIXED)) if m <= n / 5]
        jobs = [
            {
                "n": n,
                "budget": budget,
                "regime": self.regime,
                "dense": n <= self.largest_dense and budget == n / PART,
            }
            for n, budget in cases
        ]
        results = self.runner.run(jobs, measured_apart)
        return {"records.csv": attributed([row for result in results for row in result["rows"]])}

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        sizes = [_read(row) for row in tables["records.csv"]]
        report.answer(_answer(sizes))
        report.figure(_rewards(sizes), "Reward per crawl by the number of sources.")
        report.figure(_times(sizes), "Processor time of a step by the number of sources.")
        for name, kept in (("a hundredth of the sources", _grows), ("1,000 per step", _fixed)):
            mine = [size for size in sizes if kept(size)]
            report.heading(f"Budget: {name}")
            report.table("What the policies collect", *_collected(mine))
            report.table("What that takes, whittle", *_taken(mine))
        learning = [size for size in sizes if size.policy in ADAPTIVE]
        if learning:
            report.heading("Adaptive policies")
            report.table(f"After {LEARNING:,} steps of learning", *_learnt(learning, sizes))
        with report.details("How this was measured, and definitions"):
            report.paragraph(_method(sizes[0]))


def _grows(size: Size) -> bool:
    return size.budget == size.n / PART


def _fixed(size: Size) -> bool:
    return size.budget == FIXED


def _read(row: Mapping[str, Any]) -> Size:
    return Size(**{name: kind(row[name]) for name, kind in get_type_hints(Size).items()})


def _of(sizes: Sequence[Size], policy: str) -> list[Size]:
    return [size for size in sizes if size.policy == policy]


def _answer(sizes: Sequence[Size]) -> str:
    whittle = _of(sizes, "whittle")
    largest = max(whittle, key=lambda size: (size.n, size.budget))
    others = {s.policy: s.share for s in sizes if (s.n, s.budget) == (largest.n, largest.budget)}
    per_crawl = (largest.scheduling + largest.drawing) / largest.budget * 1e6
    return (
        f"Of {largest.n:,} sources, {largest.budget:,.0f} crawled per step, whittle collects "
        f"{largest.share:.2%} of the relaxed bound, static frequencies {others['static']:.2%} and "
        f"round robin {others['oldest-first']:.2%}; a crawl takes {per_crawl:.1f} µs of one core, "
        f"and a source {largest.memory:.0f} bytes."
    )


def _collected(sizes: Sequence[Size]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            f"{n:,}",
            f"{budget:,.0f}",
            number(size["whittle"].per_crawl),
            number(size["whittle"].reward / budget),
            *(f"{size[policy].share:.2%}" for policy in POLICIES),
            f"{size['whittle'].error / size['whittle'].bound:.2%}",
        ]
        for n, budget, size in _by_size(sizes)
    ]
    names = [f"{policy}, of bound" for policy in POLICIES]
    columns = [
        "sources",
        "crawls / step",
        "utility / crawl, expected",
        "as drawn",
        *names,
        "± s.e.",
    ]
    return columns, rows


def _taken(sizes: Sequence[Size]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            f"{n:,}",
            f"{budget:,.0f}",
            f"{s.scheduling / budget * 1e6:.2f}",
            f"{s.drawing / budget * 1e6:.2f}",
            f"{(s.scheduling + s.drawing) * 1e3:.3g}",
            f"{s.dense * 1e3:.3g}" if np.isfinite(s.dense) else "n/a",
            f"{s.built:.2g}",
            f"{s.relaxed:.2g}",
            f"{s.filed:.2g}",
            f"{s.columns:.0f}",
            f"{s.memory:.1f}",
        ]
        for n, budget, size in _by_size(sizes)
        for s in [size["whittle"]]
    ]
    columns = [
        "sources",
        "crawls / step",
        "scheduling, µs / crawl",
        "content, µs / crawl",
        "step, ms",
        "dense step, ms",
        "columns built, s",
        "bound, s",
        "scheduler built, s",
        "columns, B / source",
        "peak, B / source",
    ]
    return columns, rows


def _learnt(learning: Sequence[Size], sizes: Sequence[Size]) -> tuple[list[str], list[list[str]]]:
    known = {(s.n, s.budget): s.expected for s in _of(sizes, "whittle")}
    rows = [
        [
            s.policy,
            f"{s.n:,}",
            f"{s.budget:,.0f}",
            f"{s.expected / known[s.n, s.budget]:.2%}",
            f"{s.share:.2%}",
            f"{s.scheduling / s.budget * 1e6:.2f}",
        ]
        for s in learning
    ]
    columns = ["policy", "sources", "crawls / step", "of whittle, known rates", "of bound"]
    return [*columns, "scheduling, µs / crawl"], rows


def _by_size(sizes: Sequence[Size]) -> list[tuple[int, float, dict[str, Size]]]:
    keys = dict.fromkeys((size.n, size.budget) for size in sizes)
    return [(n, m, {s.policy: s for s in sizes if (s.n, s.budget) == (n, m)}) for n, m in keys]


def _rewards(sizes: Sequence[Size]) -> object:
    figure, axes = plots.new(1, 2, width=10, height=3.6)
    for axis, kept, title in zip(axes, (_grows, _fixed), ("M = N/100", "M = 1,000"), strict=True):
        mine = [size for size in sizes if kept(size)]
        for i, policy in enumerate(POLICIES):
            of_policy = _of(mine, policy)
            values = [s.per_crawl for s in of_policy]
            axis.loglog([s.n for s in of_policy], values, label=policy, **plots.style(policy, i))
        bound = _of(mine, "whittle")
        axis.loglog(
            [s.n for s in bound],
            [s.bound / s.budget for s in bound],
            label="bound",
            **plots.style("bound"),
        )
        axis.set(title=title, xlabel="sources", ylabel="utility / crawl")
    axes[0].legend(fontsize=8)
    return figure


def _times(sizes: Sequence[Size]) -> object:
    figure, axes = plots.new(1, 2, width=10, height=3.6, sharey=True)
    for axis, kept, title in zip(axes, (_grows, _fixed), ("M = N/100", "M = 1,000"), strict=True):
        mine = _of([size for size in sizes if kept(size)], "whittle")
        n = [s.n for s in mine]
        for i, (label, times) in enumerate(
            (
                ("scheduling", [s.scheduling for s in mine]),
                ("content", [s.drawing for s in mine]),
                ("dense step", [s.dense for s in mine]),
            )
        ):
            if np.isfinite(times).any():
                axis.loglog(n, times, "o-", ms=4, color=plots.PALETTE[i], label=label)
        axis.set(title=title, xlabel="sources")
    axes[0].set_ylabel("s / step")
    axes[0].legend(fontsize=8)
    return figure


def _method(size: Size) -> str:
    return (
        f"Random fleets of the regime {size.regime} (`Sources.random`), not observed, exponential "
        "utility, one seed. Every policy meets the same content, which is drawn when a source is "
        "crawled. It begins with random ages as in a fleet crawled for long at the optimal "
        "Lagrange multiplier (oldest-first: in turn), and is warmed up for N/M steps, at most 100. "
        "Expected: the mean of the reward given what was crawled and when, which has less noise "
        "than the reward as drawn. Of bound: of the relaxed bound, which no policy exceeds on "
        "average; more is the rest of a start that collects what had waited. Times are processor "
        "times of one thread, after compilation. Dense step: the vector environment with the dense "
        "Whittle policy, median of three steps. Peak: memory of the process beyond that of an "
        "empty one, after the columns, the bound and a scheduler's first step."
    )
