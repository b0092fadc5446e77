"""`ephemeral-crawl fit`: fits a fleet to a log of items, and tests the model."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import tyro

from agents.inference import shrinkage
from crawl_env import ItemLog, PingLog, Sources
from crawl_env.errors import counted
from crawl_env.rng import check_seed
from ephemeral_crawl.core.folders import check_place
from ephemeral_crawl.core.log_options import SignalOptions
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import Study
from ephemeral_crawl.fit import checks, decay, signals, summary
from ephemeral_crawl.fit.figures import FitResults
from ephemeral_crawl.fit.lives import lives


@dataclass(kw_only=True)
class Fit(SignalOptions, Study):
    """Estimates rates, utilities and decay from a log of items, and tests the model's assumptions.

    The log is a table with one row per item, as .csv, .csv.gz or .parquet. Its columns are source,
    published (a number, or a time stamp in ISO 8601 or RFC 822), utility (by default 1) and item,
    an identifier by which duplicates are found and curves joined. Sources that appear in the middle
    of the log or fall silent are fitted over their own lives. With a log of pings, the recall,
    precision and delay of the sources' signals are estimated, too.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("items", "out", "curves", "half_life", "signals", "report", "unit", "since", "until"),
        *("drop_duplicates", "drop_dead"),
    )
    outputs: ClassVar[tuple[str, ...]] = ("estimates.csv", "report.html")
    option: ClassVar[str] = "--report"

    items: Path
    """The log."""
    out: Annotated[Path, tyro.conf.arg(metavar="CSV")] = field()
    """CSV to write the fleet to, for `evaluate --sources` and `Sources.from_csv`."""
    curves: Path | None = None
    """Table item, age, remaining: the remaining fraction of an item's utility at some ages, from
    which decay rates are fitted."""
    half_life: str = ""
    """Time in which the utility of an item halves, such as 3h, if there are no curves."""
    report: Path = Path("results/fit")
    """Folder of the report and of estimates and checks per source; replaced as a whole."""
    since: Annotated[str, tyro.conf.arg(name="from", metavar="TIME")] = ""
    """Start of the log, a number or a time stamp; earlier items are left out. By default the time
    of its first item."""
    until: Annotated[str, tyro.conf.arg(metavar="TIME")] = ""
    """End of the log; later items are left out. By default just after its last item."""
    min_items: int = 1
    """Leave out sources with fewer items."""
    drop_dead: bool = False
    """Leave sources that fell silent out of the fleet; they stay in estimates.csv."""
    decay_window: float = 0.0
    """Maximum age at which decay is fitted, in units of time; by default 24 hours."""
    skew: Annotated[float | None, tyro.conf.arg(metavar="TIME")] = None
    """Time by which a ping may precede the recorded publication of what it announces, since clocks
    differ; by default found from the log."""
    seed: int = 0
    """Seed of the bootstrap, of simulated tests, and of the draws of which ping announced which
    item."""

    def run(self) -> None:
        self._check()
        results = self._fit(*self._log())
        log, dead = results.log, results.lives.dead
        rows = np.flatnonzero(~dead) if self.drop_dead else np.arange(len(log.names))
        if not rows.size:
            raise ValueError("all sources fell silent; without --drop-dead they are in the fleet")
        rates = results.decay.rate.value if results.decay else results.given_decay
        fleet = Sources(
            results.rate.value[rows],
            results.utility.value[rows],
            rates[rows],
            names=[log.names[i] for i in rows],
        )
        if results.signals is not None:
            fleet = results.signals.of(fleet, rows)
        report = Report(f"{counted(len(log.names), 'source')} fitted to {self.items.name}")
        summary.write(report, results)
        status = results.lives.status
        self.out.parent.mkdir(parents=True, exist_ok=True)
        fleet.to_csv(self.out, status=[status[i] for i in rows])
        self.publish(report, {"estimates.csv": summary.records(results)})
        if dead.any():
            fate = "left out of" if self.drop_dead else "kept in"
            print(
                f"Fell silent: {dead.sum():,} of {counted(dead.size, 'source')}, {fate} the fleet"
                + ("" if self.drop_dead else ", with the rate before that and the status dead")
            )
        print(
            f"Fleet: {self.out}\nNext: ephemeral-crawl evaluate --sources {self.out} "
            f"--budget {max(1, len(fleet) // 10)}"
        )

    @property
    def folder(self) -> Path:
        return self.report

    def _check(self) -> None:
        _ = self._decay_rate
        _ = check_seed(self.seed, "--seed")
        if self.decay_window < 0:
            raise ValueError(f"--decay-window is {self.decay_window:g}; it must be positive")
        if self.out.suffix != ".csv":
            raise ValueError(f"--out {self.out.name} is the CSV of the fleet; name it ….csv")
        out = os.path.realpath(self.out)
        if any(out == os.path.realpath(p) for p in (self.items, self.curves, self.signals) if p):
            raise ValueError(f"--out {self.out.name} is an input of this command; name another")
        if self.skew is not None and not 0 <= self.skew < np.inf:
            raise ValueError(f"--skew is {self.skew:g}; it must be zero or positive (time)")
        self.check(self.items, self.curves, self.signals, self.out)
        check_place(Path(out), "--out")

    @property
    def _decay_rate(self) -> float | None:
        return decay.declared(self.curves, self.half_life, self.unit)

    def _log(self) -> tuple[ItemLog, PingLog | None]:
        """Return the part of the log to fit, and the pings on its clock."""
        log = self.read(self.items, self.curves, since=self.since, until=self.until)
        pings = self.pings(log)
        names = [name for name, n in zip(log.names, log.counts, strict=True) if n >= self.min_items]
        if not names or not len(log):
            least = counted(max(self.min_items, 1), "item")
            raise ValueError(
                f"no source has {least} in this part of {self.items}, which "
                f"has {counted(len(log), 'item')}; take a longer part or a smaller --min-items"
            )
        part = log.select(names)
        if (few := len(log.names) - len(names)) and self.min_items > 1:
            part = part.with_notes(
                f"Left out: {counted(len(log) - len(part), 'item')} of {counted(few, 'source')} "
                f"with fewer than {self.min_items} items."
            )
        return part, None if pings is None else _of(pings, names)

    def _fit(self, log: ItemLog, pings: PingLog | None) -> FitResults:
        alive = lives(log)
        decay_fit = None
        if self.curves is not None:
            decay_fit = decay.measure(log, self.decay_window, self.seed)
        bursts = checks.dispersion(log, self.seed, alive)
        tests = {
            "bursts": bursts,
            "gaps": checks.gaps(log, self.seed),
            "drift": checks.drift(log, bursts.statistic, alive),
            "daily cycle": checks.cycle(log, bursts.statistic),
        }
        if decay_fit is not None:
            tests["decay"] = checks.Check(decay_fit.misfit, decay_fit.p)
        return FitResults(
            log,
            alive,
            shrinkage.rates(alive.counts(log), alive.span),
            shrinkage.utilities(log.source, log.utility, len(log.names)),
            decay_fit,
            np.full(len(log.names), self._decay_rate or 0.0),
            tests,
            None if pings is None else signals.measure(log, pings, alive, self.skew, self.seed),
        )


def _of(pings: PingLog, names: list[str]) -> PingLog:
    """Return the pings of the named sources."""
    part = pings.select(names)
    if left_out := len(pings) - len(part):
        return part.with_notes(
            f"Left out: {counted(left_out, 'ping')} of sources without items in the fit."
        )
    return part
