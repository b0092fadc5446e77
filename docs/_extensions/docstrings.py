"""Docstrings on API pages.

Docstrings are written for `help()`, and the environment's, as in Gymnasium, in Markdown. API pages
are reStructuredText, so what it reads differently is converted.
"""

from __future__ import annotations

import re
from typing import Any, get_origin


def converted(lines: list[str]) -> list[str]:
    """Return the lines of a docstring with Markdown's headings and tables as reStructuredText."""
    found: list[str] = []
    in_table = in_example = False
    for line in lines:
        in_example = line.startswith(">>>") or (in_example and line != "")
        if in_example:
            found.append(line)
        elif heading := re.fullmatch(r"##+ (.*)", line):
            found += [f".. rubric:: {heading[1]}", ""]
        elif line.startswith("|"):
            if not in_table:
                found += [".. list-table::", "   :header-rows: 1", ""]
            if re.search(r"[^-:| ]", line):  # not the rule below the header
                cells = [cell.strip() for cell in line.strip("|").split("|")]
                found += [f"   {' ' if i else '*'} - {cell}" for i, cell in enumerate(cells)]
        else:
            # |x| would be a substitution, and `unit`s no literal.
            plain = line.replace("|", r"\|")
            found.append(re.sub(r"(`[^`]+`)(\w?)", lambda m: m[1] + (m[2] and rf"\ {m[2]}"), plain))
        in_table = line.startswith("|")
    return found


def named(entries: dict[Any, Any]) -> list[str]:
    """Return a list of the entries of a dictionary such as `AGENTS`."""
    return [
        f"- ``{key!r}``: "
        + (f"`~{value.__module__}.{value.__name__}`" if isinstance(value, type) else f"``{value}``")
        for key, value in entries.items()
    ]


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what != "data":
        lines[:] = converted(lines)
    elif isinstance(obj, dict):
        lines[:] = ["A dictionary of all by name.", "", *named(obj)]
    else:
        lines[:] = [f"``{obj}``"]


def signature(
    app: Any,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    arguments: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Show aliases of types, such as ArrayLike, by their names alone."""

    def plain(text: str | None) -> str | None:
        return text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)

    return plain(arguments), plain(returns)


def shorten(app: Any, name: str, obj: Any, options: Any, bases: list[Any]) -> None:
    bases[:] = [get_origin(base) or base for base in bases]  # without the types of observations


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-bases", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
