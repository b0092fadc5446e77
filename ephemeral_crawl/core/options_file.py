"""Options of commands in a TOML file, `--config crawl.toml`, with a table for each command."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, get_type_hints

OPTION = "--config"


def with_file(
    words: list[str], command: str, kind: type[Any], commands: Collection[str]
) -> list[str]:
    """Return the words of a command line with those options of the file that they name, if any.

    Options of the command line come later, so that they take precedence.

    Arguments:
        words: options of the command, of which `--config FILE` may be one.
        command: its name, and that of its table.
        kind: the dataclass whose fields are its options.
        commands: the names of all commands.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not TOML, or has other tables or options than those of commands.

    >>> @dataclasses.dataclass
    ... class Crawl:
    ...     budget: str = ""
    ...     once: bool = False
    >>> path = getfixture("tmp_path") / "crawl.toml"
    >>> _ = path.write_text('[crawl]\\nbudget = "20/h"\\nonce = true')
    >>> with_file(["--config", str(path), "--no-once"], "crawl", Crawl, ["crawl"])
    ['--budget=20/h', '--once', '--no-once']
    """
    path, rest = _file_in(words)
    if path is None:
        return words
    import tomllib  # not needed for `--help`

    from crawl_env.errors import unknown

    with open(path, "rb") as file:
        try:
            content = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a TOML file: {error}") from None
    for name, table in content.items():
        if name not in commands:
            raise ValueError(f"{path}: {unknown('command', name, commands)}")
        if not isinstance(table, Mapping):
            raise ValueError(f"{path}: give the options of {name} in a table: [{name}]")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints, options, positional = get_type_hints(kind, include_extras=True), [], []
    for name, value in content.get(command, {}).items():
        if name.replace("-", "_") not in fields:
            raise ValueError(
                f"{path}: {unknown('option', name, [f.replace('_', '-') for f in fields])}"
            )
        values = [_text(path, command, name, x) for x in (value if _is_list(value) else [value])]
        option = "--" + name.replace("_", "-")
        if _is_positional(hints[name.replace("-", "_")]):
            positional += values
        elif isinstance(value, bool):
            options.append(option if value else f"--no-{option[2:]}")
        elif _is_list(value):
            options += [option, *values]
        else:
            options.append(f"{option}={values[0]}")
    return [*positional, *options, *rest]


def _file_in(words: list[str]) -> tuple[Path | None, list[str]]:
    """Return the file that is named on the command line, and the other arguments."""
    for i, word in enumerate(words):
        option, equals, path = word.partition("=")
        if option == OPTION:
            if not equals and i + 1 == len(words):
                raise ValueError(f"give {OPTION} the path of a TOML file")
            end = i + 1 if equals else i + 2
            return Path(path if equals else words[i + 1]), words[:i] + words[end:]
    return None, words


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_positional(hint: Any) -> bool:
    import tyro

    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def _text(path: Path, command: str, name: str, value: object) -> str:
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(
        f"{path}: {name} of [{command}] is {value!r}; give a text, a number, true or false, or a "
        "list of them"
    )
