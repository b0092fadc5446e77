"""The studies of this project; the commands for your own sources are those of `ephemeral-crawl`."""

from __future__ import annotations

from pathlib import Path

from ephemeral_crawl.core.program import Program

PROGRAM = Program("python -m experiments", Path(__file__).resolve().parent, __doc__)


def main(words: list[str] | None = None) -> None:
    """Run the study that the words name, by default those of the command line."""
    PROGRAM.run(words)


if __name__ == "__main__":
    main()
