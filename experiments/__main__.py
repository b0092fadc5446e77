"""Everything a person runs: `python -m experiments NAME`, with `--help` for its options."""

from __future__ import annotations

import operator
import sys
import warnings
from functools import reduce
from importlib import import_module
from typing import Annotated, Any

import tyro

# Imported when asked for: some take seconds, as they need torch.
COMMANDS = {
    "paper": "experiments.paper.command:Paper",
    "benchmark": "experiments.benchmark.command:Benchmark",
    "evaluate": "experiments.evaluate.command:Evaluate",
    "fit": "experiments.fit.command:Fit",
    "hacker-news": "experiments.hacker_news.command:HackerNews",
    "arm": "experiments.arm.command:Arm",
    "adaptive": "experiments.adaptive.command:Adaptive",
    "asymptotic": "experiments.asymptotic.command:Asymptotic",
    "decay": "experiments.decay.command:Decay",
    "sb3-time": "experiments.sb3_time.command:SB3Time",
    "throughput": "experiments.throughput.command:Throughput",
}
PROGRAM = "python -m experiments"


def main() -> None:
    warnings.showwarning = _show  # type: ignore[assignment]
    command = asked_for(sys.argv[1:])
    try:
        command.run()
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    except ValueError as error:  # bad input, said in the user's terms
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")


def asked_for(words: list[str]) -> Any:
    """Return the command that the words ask for, with its options."""
    if words and words[0] in COMMANDS:
        name, *options = words
        return tyro.cli(_kind(name), prog=f"{PROGRAM} {name}", args=options)
    # Neither any command nor a known one: help, or an error that names all of them.
    kinds: list[Any] = [Annotated[_kind(name), tyro.conf.subcommand(name)] for name in COMMANDS]
    return tyro.cli(reduce(operator.or_, kinds), prog=PROGRAM, description=__doc__, args=words)


def _kind(name: str) -> Any:
    module, _, kind = COMMANDS[name].partition(":")
    return getattr(import_module(module), kind)


def _show(message: Warning | str, *_: object) -> None:
    print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
