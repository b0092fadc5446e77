"""What must be true of all parts: no policy above the bound, and no worth of worse signals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from agents.evaluation import statistics
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Rows
from experiments.signals import quality
from experiments.signals.runs import Results

_ERRORS = 0.05  # probability that any of the comparisons of a table is an error


class Compared(NamedTuple):
    """Paired differences, none of which should be positive."""

    name: str
    z: float  # mean over standard error
    runs: int


def write(report: Report, tables: Mapping[str, Rows]) -> None:
    report.heading("What must be true")
    report.paragraph(
        "Clearly: by more than chance explains in the largest of so many comparisons, with "
        f"probability {1 - _ERRORS:.0%} (Bonferroni). The most: the largest of the differences of "
        "rewards, in standard errors, positive where it is what should not be; of the bounds, the "
        "largest fall, or if none falls the smallest rise."
    )
    rows = [_row("rewards above the bound of their information set", list(_above(tables)))]
    if quality.PART in tables:
        results = Results(tables[quality.PART], "fleet", "budget", "recall", "precision", "quality")
        rows.append(
            _row("rewards that fall with a better recall or precision", list(_falls(results)))
        )
        falls = [later / earlier - 1 for earlier, later in _bounds(results)]
        rows.append([
            "bounds that fall with a better recall or precision", f"{len(falls)}",
            f"{sum(fall < -1e-3 for fall in falls)}", f"{min(falls):+.2%}" if falls else "n/a",
        ])  # fmt: skip
    columns = ["what should not be", "comparisons", "clearly so", "the most"]
    report.table("Checks", columns, rows)


def _row(name: str, compared: list[Compared]) -> list[str]:
    if not compared:
        return [name, "0", "0", "n/a"]
    level = 1 - _ERRORS / len(compared)
    clear = [c for c in compared if c.z > statistics.t_quantile(level, c.runs - 1)]
    most = max(compared, key=lambda c: c.z)
    return [name, str(len(compared)), str(len(clear)), f"{most.z:+.1f} s.e. ({most.name})"]


def _above(tables: Mapping[str, Rows]) -> Iterator[Compared]:
    """Yield every agent's reward less the bound."""
    for part, rows in tables.items():
        if not rows or "bound" not in rows[0]:
            continue
        runs = ("run", "reward", "seed")
        key = [name for name in rows[0] if name not in runs]
        results = Results([row for row in rows if row["bound"] not in ("", "nan")], *key)
        for values in results:
            share, bound = results.share(*values), results.bound(*values)
            first = results.rows(*values)[0]
            name = f"{part}, {first.get('case', '')}, {first.get('agent', '')}"
            yield from _compared(name, share - bound)


def _falls(results: Results) -> Iterator[Compared]:
    """Yield the reward under worse signals less that under better ones."""
    for worse, better in _pairs(results):
        name = f"{worse[0]}, M = {worse[1]}, {worse[4]} against {better[4]}"
        yield from _compared(name, results.share(*worse) - results.share(*better))


def _bounds(results: Results) -> Iterator[tuple[float, float]]:
    for worse, better in _pairs(results):
        yield results.bound(*worse), results.bound(*better)


def _pairs(results: Results) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield pairs of neighbouring qualities of the same task: the worse, the better."""
    signalled = [key for key in results if key[4] not in (quality.NONE, quality.OBSERVED)]
    cells = {(key[:2], float(key[2]), float(key[3])): key for key in signalled}
    for (task, recall, precision), key in cells.items():
        above = [(r, cells[of, r, p]) for of, r, p in cells if of == task and p == precision]
        beside = [(p, cells[of, r, p]) for of, r, p in cells if of == task and r == recall]
        for better, least in ((above, recall), (beside, precision)):
            if better := [pair for pair in better if pair[0] > least]:
                yield key, min(better)[1]


def _compared(name: str, differences: np.ndarray) -> Iterator[Compared]:
    error = differences.std(ddof=1) / np.sqrt(differences.size)
    if error > 0:
        yield Compared(name, float(differences.mean() / error), differences.size)
