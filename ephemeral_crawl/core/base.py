"""Base class of all commands.

A command is a module NAME.py, or a folder NAME with a module `command.py`, which defines one
subclass of `Command`: its fields are the options, its docstring is the help, and the first sentence
of that is shown by the program's `--help`. Nothing else has to be registered. Those that write a
folder of results are studies (`ephemeral_crawl.core.study`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar


@dataclass(kw_only=True)
class Command(ABC):
    """What a program does when its name is given."""

    main: ClassVar[tuple[str, ...]] = ()  # the options that --help shows; none: all of them

    @abstractmethod
    def run(self) -> None:
        """Run the command.

        Raises:
            ValueError, OSError: what the user should read, without a traceback.
        """

    @classmethod
    def name(cls) -> str:
        """Return the name of the command, which is that of its module or its folder."""
        return cls.__module__.removesuffix(".command").rpartition(".")[2].replace("_", "-")
