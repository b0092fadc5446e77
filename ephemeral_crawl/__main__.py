"""Crawling of ephemeral content: which sources to fetch, when, and what that gains."""

from __future__ import annotations

import sys
from pathlib import Path

from ephemeral_crawl.core.program import Program

PROGRAM = Program("ephemeral-crawl", Path(__file__).resolve().parent, __doc__)


_RECORDED = ("--items", "--signals")  # options that give a log


def main(words: list[str] | None = None) -> None:
    """Run the command that the words name, by default those of the command line."""
    arguments = sys.argv[1:] if words is None else words
    if arguments[:1] == ["evaluate"] and any(w.partition("=")[0] in _RECORDED for w in arguments):
        arguments = ["replay", *arguments[1:]]  # a log is replayed
    PROGRAM.run(arguments)


if __name__ == "__main__":
    main()
