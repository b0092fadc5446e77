"""Everything that is run from a command line: `python -m experiments NAME`."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.core.study import Study

HERE = Path(__file__).resolve().parent
PROGRAM = "python -m experiments"


def main(words: list[str] | None = None) -> None:
    """Run the command that the words name, by default those of the command line."""
    warnings.showwarning = _show  # type: ignore[assignment]
    study = asked_for(sys.argv[1:] if words is None else words)
    try:
        study.run()
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    except ValueError as error:  # bad input
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")


def asked_for(words: list[str]) -> Study:
    """Return the study that the words ask for, with its options."""
    known = studies()
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        sys.exit(0 if words else 2)
    name, *options = words
    if name not in known:
        from crawl_env.errors import unknown

        sys.exit(f"error: {unknown('command', name, known)}")
    import tyro

    return tyro.cli(_kind(name), prog=f"{PROGRAM} {name}", args=options)


def studies() -> dict[str, Path]:
    """Return the names of all studies and their modules: every folder here with a `command.py`."""
    modules = sorted(HERE.glob("*/command.py"))
    return {module.parent.name.replace("_", "-"): module for module in modules}


def overview() -> str:
    """Return the names of the studies and what each is for, without importing any: some need
    libraries that take seconds to import."""
    lines = [__doc__, "", f"usage: {PROGRAM} NAME [options]    ({PROGRAM} NAME --help lists them)"]
    width = max(map(len, studies()))
    for name, module in studies().items():
        text = textwrap.wrap(summary(module), 96 - width)
        lines += [f"\n  {name:{width}}  {text[0]}"]
        lines += [f"{'':{width + 4}}{line}" for line in text[1:]]
    return "\n".join(map(str, lines))


def summary(module: Path) -> str:
    """Return the first sentence of a study's docstring, as it stands in its module."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _is_study(node):
            text = " ".join((ast.get_docstring(node) or "").split())
            ends = [i + 1 for end in (". ", "? ", "! ") if (i := text.find(end)) >= 0]
            return text[: min(ends, default=len(text))]
    raise TypeError(f"{module} defines no subclass of experiments.core.study.Study")


def _is_study(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id.endswith("Study") for base in node.bases)


def _kind(name: str) -> type[Study]:
    from experiments.core.study import Study

    module = import_module(f"experiments.{name.replace('-', '_')}.command")
    (kind,) = (
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Study) and kind.__module__ == module.__name__
    )
    return kind


def _show(message: Warning | str, *_: object) -> None:
    print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
