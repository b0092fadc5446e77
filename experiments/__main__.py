"""Everything a person runs: `python -m experiments NAME`, with `--help` for its options."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import tyro

from experiments.adaptive.command import Adaptive
from experiments.arm.command import Arm
from experiments.asymptotic.command import Asymptotic
from experiments.benchmark.command import Benchmark
from experiments.decay.command import Decay
from experiments.evaluate.command import Evaluate
from experiments.fit.command import Fit
from experiments.hacker_news.command import HackerNews
from experiments.paper.command import Paper
from experiments.sb3_time.command import SB3Time
from experiments.throughput.command import Throughput
from experiments.tune.command import Tune

Command = (
    Annotated[Paper, tyro.conf.subcommand("paper")]
    | Annotated[Benchmark, tyro.conf.subcommand("benchmark")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[HackerNews, tyro.conf.subcommand("hacker-news")]
    | Annotated[Arm, tyro.conf.subcommand("arm")]
    | Annotated[Adaptive, tyro.conf.subcommand("adaptive")]
    | Annotated[Asymptotic, tyro.conf.subcommand("asymptotic")]
    | Annotated[Decay, tyro.conf.subcommand("decay")]
    | Annotated[SB3Time, tyro.conf.subcommand("sb3-time")]
    | Annotated[Throughput, tyro.conf.subcommand("throughput")]
    | Annotated[Tune, tyro.conf.subcommand("tune")]
)


def main() -> None:
    warnings.showwarning = _show  # type: ignore[assignment]
    command = tyro.cli(Command, prog="python -m experiments", description=__doc__)
    try:
        command.run()
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    except ValueError as error:  # bad input, said in the user's terms
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")


def _show(message: Warning | str, *_: object) -> None:
    print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
