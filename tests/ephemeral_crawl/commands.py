"""What the tests of the commands share."""

from __future__ import annotations

from pathlib import Path

import crawl_env
import ephemeral_crawl
from ephemeral_crawl import __main__ as cli
from ephemeral_crawl.core import results
from ephemeral_crawl.evaluate.command import Evaluate
from ephemeral_crawl.replay.command import ReplayLog

DATA = Path(ephemeral_crawl.__file__).parent / "data"
LOG = DATA / "example-log.csv"
FLEET = Path(crawl_env.__file__).parent / "fleet" / "presets" / "mixed-costs.csv"
FEW = ("whittle", "random", "static", "nutch")
rows = results.read_csv
ALONE = {"jobs": 1, "run_on": "sequential", "replace": True}


def run(words: str, *more: str) -> None:
    """Run a command as from the command line."""
    results.provenance.cache_clear()
    cli.main([*words.split(), *more])


def evaluated(folder: Path, **options: object) -> Path:
    """Evaluate the example fleet; return the folder of the results."""
    arguments = {"sources": str(FLEET), "budget": "4", "steps": 60, "warmup": 10, "seeds": 3}
    Evaluate(**{**ALONE, **arguments, **options, "out": folder / "out"}).run()
    return folder / "out"


def replayed(folder: Path, **options: object) -> Path:
    """Replay the example log; return the folder of the results."""
    arguments = {"items": LOG, "half_life": "5.8h", "budget": "2", "steps": 200, "seeds": 2}
    ReplayLog(**{**ALONE, **arguments, "agents": FEW, **options, "out": folder / "out"}).run()
    return folder / "out"


def totals(folder: Path) -> dict[str, float]:
    """Return the sum of all rewards in the records, by policy."""
    sums: dict[str, float] = {}
    for row in rows(folder / "records.csv"):
        sums[row["agent"]] = sums.get(row["agent"], 0.0) + float(row["reward"])
    return sums
