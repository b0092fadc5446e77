"""Crawling of ephemeral content: which sources to fetch, when, and what that gains."""

from __future__ import annotations

from pathlib import Path

from ephemeral_crawl.core.program import Program

PROGRAM = Program("ephemeral-crawl", Path(__file__).resolve().parent, __doc__)


def main(words: list[str] | None = None) -> None:
    """Run the command that the words name, by default those of the command line."""
    PROGRAM.run(words)


if __name__ == "__main__":
    main()
