"""A program with commands, each a module NAME.py, or a folder NAME with a module `command.py`.

A command is one subclass of `Command`: its fields are the options, its docstring is the help, and
the first sentence of that is shown by the program's `--help`. Nothing else has to be registered.
Those that write a folder of results are studies (`ephemeral_crawl.core.study`).

This module imports nothing but the standard library until a command runs, so that `--help` works
without any extra and at once.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import re
import shutil
import sys
import textwrap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, TextIO, cast, get_type_hints

from ephemeral_crawl.core.options_file import OPTION, with_file


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


_RENAMED = {"--engine": "--run-on"}  # options by the names that they had


@dataclass(frozen=True)
class Program:
    """The commands of a package.

    Arguments:
        name: the words that start the program.
        folder: of the package; each module in it that defines a command is one, and each folder
            with a `command.py`.
        purpose: a sentence for the help.
    """

    name: str
    folder: Path
    purpose: str

    def run(self, words: list[str] | None = None) -> None:
        """Run the command that the arguments name; default: those of the command line."""
        warnings.showwarning = _show  # type: ignore[assignment]
        words = sys.argv[1:] if words is None else words
        try:
            with readers_may_leave():
                self.command_of(words).run()
        except ImportError as error:
            from crawl_env.extras import missing, sharing_a_name

            rivals = sharing_a_name()
            if rivals:
                sys.exit(
                    f"error: {', '.join(rivals)} installed files in this project's package "
                    "'agents', which no longer works. Install ephemeral-crawl in an environment of "
                    "its own"
                )
            name = error.name if isinstance(error, ModuleNotFoundError) else None
            if name is None or _is_ours(name):
                raise
            sys.exit(f"error: {missing(name, self.name)}")
        except FileNotFoundError as error:
            sys.exit(f"error: {_not_found(error, words)}")
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            sys.exit(f"error: {place}{error.strerror or error}")
        except ValueError as error:  # bad input
            text = _with_option(str(error), words)
            sys.exit("\n".join([f"error: {text}", *getattr(error, "__notes__", ())]))
        except KeyboardInterrupt:
            with suppress(OSError):
                print("\nstopped", file=sys.stderr)
            sys.exit(130)

    def command_of(self, words: list[str]) -> Command:
        """Return the command that the words ask for, with its options."""
        commands = self.commands()
        if not words or words[0] in ("-h", "--help"):
            print(self.overview())
            sys.exit(0 if words else 2)
        if words == ["--version"]:
            from crawl_env import __version__

            print(__version__)
            sys.exit(0)
        name, *options = words
        if name not in commands:
            from crawl_env.errors import unknown

            sys.exit(f"error: {unknown('command', name, commands)}")
        kind = self._kind(name)
        help_options = {"-h", "--help", "--help-all"} & {*options}
        if help_options:
            self._help(name, kind, everything="--help-all" in help_options)
        import tyro

        options = with_file(options, name, kind, commands)
        for old, new in _RENAMED.items():
            options = [new + word.removeprefix(old) if _is(old, word) else word for word in options]
        return tyro.cli(kind, prog=f"{self.name} {name}", args=options)

    def _help(self, name: str, kind: type[Command], everything: bool) -> None:
        """Print the options of a command, all or the most important, and end."""
        import tyro

        names = [field.name for field in dataclasses.fields(kind)]
        visible = names if everything else kind.main or names
        only = (tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff)
        try:
            tyro.cli(
                _help_class(kind, visible),
                prog=f"{self.name} {name}",
                description=_wrap(kind.__doc__ or ""),
                args=["-h"],
                config=only,
            )
        finally:
            if more := len(names) - len(visible):
                print(f"{more} more options: {self.name} {name} --help-all")
            print(f"Options may be in a TOML file, in its table [{name}]: {OPTION} FILE")

    def commands(self) -> dict[str, Path]:
        """Return the names of all commands and their modules."""
        alone = {m.stem: m for m in self.folder.glob("*.py") if _docstring_in(m) is not None}
        modules = alone | {m.parent.name: m for m in self.folder.glob("*/command.py")}
        return {name.replace("_", "-"): modules[name] for name in sorted(modules)}

    def overview(self) -> str:
        """Return the names of the commands and what each is for, without importing any: some need
        libraries that take seconds to import, or that are not installed."""
        usage = f"usage: {self.name} NAME [options]    ({self.name} NAME --help lists them)"
        lines = [self.purpose, "", usage]
        width = max(map(len, self.commands()))
        for name, module in self.commands().items():
            text = textwrap.wrap(summary(module), 96 - width)
            lines += [f"\n  {name:{width}}  {text[0]}"]
            lines += [f"{'':{width + 4}}{line}" for line in text[1:]]
        return "\n".join(lines)

    def _kind(self, name: str) -> type[Command]:
        place = self.commands()[name].relative_to(self.folder.parent).with_suffix("")
        module = import_module(".".join(place.parts))
        (kind,) = (
            kind
            for kind in vars(module).values()
            if inspect.isclass(kind)
            and issubclass(kind, Command)
            and kind.__module__ == module.__name__
        )
        return kind


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """Go on in silence if what is printed has no reader any more, as in `… | head`: a command's
    results are the files that it writes. Standard error that is closed is none that libraries
    expect: it goes nowhere instead."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stdout(_Unbroken.of(sys.stdout)),
        redirect_stderr(_Unbroken.of(sys.stderr or nowhere)),
    ):
        try:
            yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()


def breaking(stream: TextIO) -> TextIO:
    """Return a stream that raises when its pipe is closed, for output that must not be lost."""
    return stream._stream if isinstance(stream, _Unbroken) else stream


class _Unbroken:
    """A stream that drops what is written once its pipe is closed, and writes characters that its
    encoding lacks as escapes such as \\u2026."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @staticmethod
    def of(stream: TextIO | None) -> TextIO:
        return cast(TextIO, stream and _Unbroken(stream))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:
            escaped = text.encode(error.encoding, "backslashreplace").decode(error.encoding)
            return self.write(escaped)
        except BrokenPipeError:
            self._go_nowhere()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._go_nowhere()

    def _go_nowhere(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def summary(module: Path) -> str:
    """Return the first sentence of a command's docstring, as it stands in its module."""
    docstring = _docstring_in(module)
    if docstring is None:
        raise TypeError(f"{module} defines no subclass of ephemeral_crawl.core.program.Command")
    text = " ".join(docstring.split())
    ends = [i + 1 for end in (". ", "? ", "! ") if (i := text.find(end)) >= 0]
    return text[: min(ends, default=len(text))]


@cache
def _docstring_in(module: Path) -> str | None:
    """Return the docstring of the command that a module defines, None if it defines none."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    node = next((node for node in classes if _is_command(node)), None)
    return None if node is None else ast.get_docstring(node) or ""


def _is_command(node: ast.ClassDef) -> bool:
    return any(
        isinstance(base, ast.Name) and base.id.endswith(("Command", "Study")) for base in node.bases
    )


def _not_found(error: FileNotFoundError, words: list[str]) -> str:
    """Return a sentence that names the option of the command line that gave the file."""
    if not error.filename:
        return str(error.strerror or error)
    path = str(error.filename)
    text = f"{path}: {error.strerror or 'No such file or directory'}"
    option = next((a for a, b in pairwise(words) if b == path), "")
    if not option.startswith("-"):
        return text
    folder = "" if Path(path).is_absolute() else f"; relative paths start at {Path.cwd()}"
    kind = "a path in a folder" if option == "--out" else "the path of a file"
    return f"{text}. Give {option} {kind} that exists{folder}"


def _with_option(message: str, words: list[str]) -> str:
    """Return a message that names the option instead of the argument, if one gave it.

    >>> _with_option("half_life is '3', without a unit", ["crawl", "--half-life", "3"])
    "--half-life is '3', without a unit"
    """
    name, verb, rest = message.partition(" is ")
    option = f"--{name.replace('_', '-')}"
    is_given = any(_is(option, word) for word in words)
    return f"{option}{verb}{rest}" if is_given else message


def _is(option: str, word: str) -> bool:
    return word.partition("=")[0] == option


def _help_class(kind: type[Command], names: Collection[str]) -> type[Command]:
    """Return a command with some of its options, as its help describes them: without the defaults
    that say only that there is none."""
    import tyro

    def default(label: str) -> str:
        return "" if label in ("", "None", "''", "False") else f"(default: {label})"

    hidden: Any = tyro.conf.Suppress
    texts = _texts(kind)
    hints, fields = get_type_hints(kind, include_extras=True), dataclasses.fields(kind)
    content: dict[str, Any] = {"__annotations__": {}, "__doc__": kind.__doc__}
    for field in fields:
        kind_of: Any = hints[field.name]
        about = tyro.conf.arg(help=texts.get(field.name), help_behavior_hint=default)
        hint: Any = Annotated[kind_of, about]
        if field.name not in names:
            hint, content[field.name] = hidden[Any], None
        elif field.default is not dataclasses.MISSING:
            content[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            content[field.name] = dataclasses.field(default_factory=field.default_factory)
        else:
            content[field.name] = dataclasses.field()
        content["__annotations__"][field.name] = hint
    return dataclasses.dataclass(kw_only=True)(type(kind.__name__, (kind,), content))


def _texts(kind: type[Command]) -> dict[str, str]:
    """Return the help text of each option of a command, with each paragraph on one line.

    tyro wraps the lines, and takes a line that does not begin with a letter for an item of a list.
    """
    texts = dict[str, str]()
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base) and _is_ours(base.__module__):
            texts |= _texts_in(base)
    return texts


@cache
def _texts_in(kind: type) -> dict[str, str]:
    """Return the texts below the fields that a class itself defines."""
    texts = dict[str, str]()
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    for field, text in pairwise(node.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            texts[field.target.id] = _paragraphs(text.value.value)
    return texts


def _wrap(text: str) -> str:
    """Return a text in lines as wide as the terminal.

    tyro wraps the texts of options, but joins the lines of what stands above them, except those
    that begin with a space.
    """
    width = shutil.get_terminal_size().columns
    paragraphs = _paragraphs(text).split("\n\n")
    return "\n\n".join(textwrap.fill(p, width, subsequent_indent="  ") for p in paragraphs)


def _paragraphs(text: str) -> str:
    """Return a text with each of its paragraphs in one line."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ("crawl_env", "agents", "ephemeral_crawl", "experiments")


def _show(message: Warning | str, *_: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
