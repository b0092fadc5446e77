"""How content arrives, whatever the crawler does: the deterministic way, and all ways by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Protocol

import numpy as np

from crawl_env.content.cells import Cells, Stream
from crawl_env.content.decay import DECAYS
from crawl_env.content.hawkes import Bursts
from crawl_env.content.poisson import Poisson
from crawl_env.content.rates import DailyCycle, Drift, Jumps, Varying
from crawl_env.content.trace import Trace
from crawl_env.content.utility import LAWS
from crawl_env.errors import unknown
from crawl_env.log.item_log import ItemLog
from crawl_env.numerics import FloatArray

__all__ = ["ARRIVALS", "Arrivals", "Cells", "Deterministic", "Poisson", "make_arrivals"]


class Arrivals(Protocol):
    """How content arrives. Implement these to bring your own; see `Deterministic`.

    Arrivals whose items must be followed one by one, because they do not decay exponentially, have
    besides `itemised` = True and `feed(sources, rows)`, which returns a `item_store.Feed`; a
    world then asks for nothing else. `feed` is also what capacities need, and features that sum up
    items. Arrivals whose rate has a state of its own are a `crawl_env.Varying`.
    """

    @property
    def deterministic(self) -> bool:
        """Whether nothing is drawn at random."""

    def stream(self, cells: Cells, count: bool) -> Stream:
        """Return the function that adds one epoch's content to the cells."""

    def content(
        self, cells: Cells, epochs: FloatArray, count: bool, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return utility and number of items left by `epochs` (n,) epochs of arrivals; infinity
        is the stationary law, whose number of items is 0: it has no finite one."""


@dataclass(frozen=True)
class Deterministic:
    """Every epoch adds exactly its mean: u utility and ΛT items (equation 2 of the paper)."""

    deterministic: bool = field(default=True, init=False)

    def stream(self, cells: Cells, count: bool) -> Stream:
        inflow, arriving = cells.mean_content(1.0), cells.items

        def add(value: FloatArray, items: FloatArray | None, rng: np.random.Generator) -> None:
            np.add(value, inflow, value)
            if items is not None:
                items += arriving

        return add

    def content(
        self, cells: Cells, epochs: FloatArray, count: bool, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        finite = np.where(np.isfinite(epochs), epochs, 0.0)
        return cells.mean_content(epochs), cells.items * finite


VARYING: dict[str, type[Varying]] = {
    "poisson-drift": Drift,
    "poisson-jumps": Jumps,
    "poisson-cycle": DailyCycle,
    "poisson-bursts": Bursts,
}

ARRIVALS = (
    "deterministic",
    "poisson",
    *(f"poisson-{law}" for law in LAWS),
    *(f"poisson-{decay}" for decay in DECAYS if decay not in LAWS),
    *(f"poisson-{law}-{decay}" for law in LAWS for decay in DECAYS if decay not in LAWS),
    *VARYING,
)


LOGS = (".csv", ".csv.gz", ".parquet")  # what a path to a log ends in


def make_arrivals(arrivals: str | PathLike[str] | Arrivals) -> Arrivals:
    """Return arrivals by name, or the object given.

    `"poisson"` has exponential ξ and exponential decay; `"poisson-lognormal"`, `"poisson-lomax"`,
    `"poisson-lognormal-lomax"` and the like name another law of ξ, of decay or of both, with their
    default parameters; `Poisson(Lognormal(0.5), LomaxDecay(3))` sets them. `"poisson-drift"`,
    `"poisson-jumps"`, `"poisson-cycle"` and `"poisson-bursts"` stand for `Drift()`, `Jumps()`,
    `DailyCycle()` and `Bursts()`, under which rates change with time.

    Recorded arrivals are a `Trace`. The path of a log (.csv, .csv.gz or .parquet) stands for
    `Trace(ItemLog.from_csv(path))`: numbers in the unit of time of the fleet's rates, or time
    stamps, which become hours; no curves; a span from the first item to the last.

    Raises:
        FileNotFoundError: no such log.
        ValueError: unknown name, or a log that cannot be read.
    """
    if isinstance(arrivals, PathLike) or (isinstance(arrivals, str) and arrivals.endswith(LOGS)):
        log: Any = Trace(ItemLog.from_csv(arrivals))
        return log
    if not isinstance(arrivals, str):
        itemised = getattr(arrivals, "itemised", False)
        wanted = ("deterministic", *(("feed",) if itemised else ("stream", "content")))
        if isinstance(arrivals, type) or not all(hasattr(arrivals, name) for name in wanted):
            raise ValueError(
                f"arrivals is {arrivals!r}; give one of {', '.join(ARRIVALS)}, the path of a log, "
                "crawl_env.Trace(items) of a log in memory, or an object with "
                "`deterministic`, `stream` and `content` as in crawl_env.Arrivals"
            )
        return arrivals
    if arrivals == "deterministic":
        return Deterministic()
    if arrivals in VARYING:
        varying: Any = VARYING[arrivals]()
        return varying
    if arrivals in ARRIVALS:
        given = arrivals.split("-")[1:]
        law = next((word for word in given if word in LAWS), "exponential")
        return Poisson(law, next((word for word in given if word not in LAWS), "exponential"))
    if arrivals == "trace":
        raise ValueError(
            "arrivals='trace' needs a log to play back; give its path (.csv, .csv.gz or .parquet), "
            "or crawl_env.Trace(crawl_env.ItemLog.from_csv(path))"
        )
    raise unknown("arrivals", arrivals, ARRIVALS)
