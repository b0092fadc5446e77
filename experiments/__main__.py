"""`python -m experiments NAME`: everything a person runs. `--help` lists names and options."""

from __future__ import annotations

from typing import Annotated

import tyro

from experiments.paper.command import Paper

Command = Annotated[Paper, tyro.conf.subcommand("paper")]


def main() -> None:
    command = tyro.cli(Command, prog="python -m experiments", description=__doc__)
    command.run()


if __name__ == "__main__":
    main()
