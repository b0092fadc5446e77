"""`ephemeral-crawl fit`: fits a fleet to a log of items, and tests the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import tyro

from crawl_env import ItemLog, Sources
from crawl_env.files.table import is_number
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Study
from ephemeral_crawl.fit import checks, decay, estimate, summary
from ephemeral_crawl.fit.results import FitResults


@dataclass(kw_only=True)
class Fit(Study):
    """Estimates rates, utilities and decay from a log of items, and tests the model's assumptions.

    The log is a table with one row an item: source, published (a number or an ISO 8601 time stamp),
    utility (by default 1) and, to join curves, item; as .csv, .csv.gz or .parquet.
    """

    outputs: ClassVar[tuple[str, ...]] = ("estimates.csv", "report.html")

    items: Path
    """The log."""
    out: Annotated[Path, tyro.conf.arg(metavar="CSV")] = field()
    """CSV to write the fleet to, for `evaluate --sources` and `Sources.from_csv`."""
    curves: Path | None = None
    """Table item, age, remaining: the remaining fraction of an item's utility at some ages, from
    which decay rates are fitted."""
    decay_rate: float | None = None
    """μ of all sources, 1 / unit of time, if there are no curves: ln 2 / half-life."""
    report: Path = Path("results/fit")
    """Folder of the report and of estimates and checks per source; replaced as a whole."""
    unit: str = "hour"
    """Unit of time of the log's numbers, and of the rates: second, minute, hour or day."""
    since: Annotated[str, tyro.conf.arg(name="from", metavar="TIME")] = ""
    """Start of the log, a number or a time stamp; earlier items are left out. By default the time
    of its first item."""
    until: Annotated[str, tyro.conf.arg(metavar="TIME")] = ""
    """End of the log; later items are left out. By default just after its last item."""
    min_items: int = 1
    """Leave out sources with fewer items."""
    decay_window: float = 0.0
    """Maximum age at which decay is fitted, in units of time; by default 24 hours."""
    seed: int = 0
    """Seed of the bootstrap and of simulated tests."""

    def run(self) -> None:
        self._check()
        log, left_out = self._log()
        found = self._found(log)
        rates = found.decay.rate.value if found.decay else found.given_decay
        fleet = Sources(found.rate.value, found.utility.value, rates, names=log.names)
        report = Report(f"{len(log.names)} sources fitted to {self.items.name}")
        summary.write(report, found, left_out)
        fleet.to_csv(self.out)
        self.publish(report, {"estimates.csv": summary.records(found)})
        print(
            f"Fleet: {self.out}\nNext: ephemeral-crawl evaluate --sources {self.out} "
            f"--budget {max(1, len(log.names) // 10)}"
        )

    @property
    def folder(self) -> Path:
        return self.report

    def _check(self) -> None:
        if (self.curves is None) == (self.decay_rate is None):
            which = "neither" if self.curves is None else "both"
            raise ValueError(
                f"{which} of --curves and --decay-rate given; give either the recorded curves of "
                "items, or the decay rate (ln 2 / half-life, per unit of time) of all sources"
            )
        if self.decay_rate is not None and not (0 < self.decay_rate < np.inf):
            raise ValueError(f"--decay-rate is {self.decay_rate:g}; it must be positive (1/time)")
        if self.decay_window < 0:
            raise ValueError(f"--decay-window is {self.decay_window:g}; it must be positive")
        if self.out.suffix != ".csv":
            raise ValueError(f"--out {self.out.name} is the CSV of the fleet; name it ….csv")
        if any(self.out.resolve() == p.resolve() for p in (self.items, self.curves) if p):
            raise ValueError(f"--out {self.out.name} is an input of this command; name another")
        if not self.out.resolve().parent.is_dir():
            raise ValueError(f"--out {self.out}: its folder does not exist; create it")
        self.check(self.items, self.curves, self.out)

    def _log(self) -> tuple[ItemLog, str]:
        """Return the part of the log to fit, and a sentence on what was left out."""
        whole = ItemLog.from_csv(self.items, self.curves, unit=self.unit)
        log = whole.covering(
            given_time("--from", self.since, whole), given_time("--until", self.until, whole)
        )
        outside = len(whole) - len(log)
        counts = np.bincount(log.source, minlength=len(log.names))
        names = [name for name, n in zip(log.names, counts, strict=True) if n >= self.min_items]
        if not names or not len(log):
            raise ValueError(
                f"no source has {max(self.min_items, 1)} items in this part of {self.items} "
                f"({len(log)} of {len(whole)} items); take a longer part or a smaller --min-items"
            )
        kept = log.select(names)
        left_out = []
        if outside:
            left_out.append(f"{outside:,} items outside this time")
        if len(names) < len(log.names):
            left_out.append(
                f"{len(log) - len(kept):,} items of {len(log.names) - len(names):,} sources with "
                f"fewer than {self.min_items}"
            )
        return kept, f"Left out: {', '.join(left_out)}." if left_out else ""

    def _found(self, log: ItemLog) -> FitResults:
        counts = np.bincount(log.source, minlength=len(log.names))
        fitted = None
        if self.curves is not None:
            fitted = decay.measure(log, self.decay_window, self.seed)
        bursts = checks.dispersion(log, self.seed)
        done = {
            "bursts": bursts,
            "gaps": checks.gaps(log, self.seed),
            "drift": checks.drift(log, bursts.statistic),
            "daily cycle": checks.cycle(log, bursts.statistic),
        }
        if fitted is not None:
            done["decay"] = checks.Check(fitted.misfit, fitted.p)
        return FitResults(
            log,
            estimate.rates(counts, log.span),
            estimate.utilities(log.source, log.utility, len(log.names)),
            fitted,
            np.full(len(log.names), self.decay_rate or 0.0),
            done,
        )


def given_time(option: str, text: str, log: ItemLog) -> float | str | None:
    """Return the number or time stamp that an option holds, or None if it is empty."""
    if not text or is_number(text):
        return float(text) if text else None
    if not log.origin:
        raise ValueError(
            f"{option} is {text!r}, but the log's times are numbers; give a number, in {log.unit}s"
        )
    return text
