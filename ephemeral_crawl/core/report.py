"""Reports: one HTML page with the answer, figures and tables, which are also printed as text.

The page is a single file that needs nothing else: a Jinja2 template (`page/report.html`, with its
style and script) into which figures are drawn as SVG. Whatever is shown is escaped, and the page
forbids itself to load anything and to run any script but its own.
"""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from tqdm import tqdm

from ephemeral_crawl.core.results import provenance

Row = Sequence[Any]

_PAGE = Path(__file__).parent / "page"
STYLE = (_PAGE / "report.css").read_text(encoding="utf-8")
_CONTENTS = 4  # a page with so many headings lists them at the top


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, an interval that is shown smaller, and the key to sort by."""

    text: str
    interval: str = ""
    number: float | None = None  # None: sorted last


@dataclass(frozen=True)
class Block:
    """A part of a page; `kind` names the macro of the template that shows it."""

    kind: str  # heading, paragraph, table, figure or details
    text: str = ""  # heading, paragraph, caption or summary
    columns: Sequence[Any] = ()
    rows: Sequence[Sequence[Cell]] = ()
    words: Sequence[str] = ()  # of each column: "words", "words long", or "" for numbers
    picture: str = ""  # SVG that is safe to show
    alt: str = ""
    width: float = 0.0
    several: bool = False
    blocks: list[Block] = field(default_factory=list)


class Report:
    """Collects the parts of a page, and prints texts and tables as it goes, and on standard error
    which figure is being drawn, which takes a second or more.

    >>> report = Report("Two policies", quiet=True)
    >>> report.answer("whittle collects 12 % more than oldest-first.")
    >>> report.table("Rewards", ["policy", "reward"], [["whittle", 1.12], ["oldest-first", 1.0]])
    >>> with report.details("How this was measured"):
    ...     report.paragraph("In 2,000 steps.")
    """

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.title, self._quiet = title, quiet
        self._answer = ""
        self._page: list[Block] = []
        self._into = self._page  # where the next block goes
        self._figures = 0
        self._pictures: dict[str, bytes] = {}
        self._print_underlined(title, "=")

    def answer(self, text: str) -> None:
        """Set the one sentence with which the page begins: what was found."""
        self._answer = text
        self._print(text)

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._into.append(Block("heading", text))
        self._print_underlined(text, "-")

    def paragraph(self, text: str) -> None:
        """Add a paragraph of plain text; `code` between backticks is shown as such."""
        self._into.append(Block("paragraph", text))
        self._print(text)

    @contextmanager
    def details(self, summary: str) -> Iterator[None]:
        """Fold what is added meanwhile under a summary that opens on a click."""
        outside, block = self._into, Block("details", summary)
        outside.append(block)
        self._print(f"{summary}:")
        self._into = block.blocks
        try:
            yield
        finally:
            self._into = outside

    def table(self, caption: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Add a table. Its columns sort by the first number of their cells, or by text.

        Arguments:
            rows: of as many cells as there are columns; the first is the row's name.
        """
        text = [[str(cell) for cell in row] for row in rows]
        words = [_kind([row[j] for row in text], j == 0) for j in range(len(columns))]
        cells = [[_cell(cell, kind) for cell, kind in zip(r, words, strict=True)] for r in text]
        self._into.append(Block("table", caption, columns=columns, rows=cells, words=words))
        self._print(f"{caption}\n{text_table(columns, rows)}")

    def figure(self, figure: Any, caption: str, name: str | None = None, alt: str = "") -> None:
        """Draw a matplotlib figure in the page, and close it.

        Arguments:
            name: also write it as NAME.png beside the page.
            alt: a description for readers who do not see it; by default the caption.
        """
        from ephemeral_crawl.core import plots

        self._figures += 1
        text = f"drawing figure {self._figures}"
        # None: only on a terminal, since elsewhere the line would stay, before the next table.
        quiet = self._quiet or None
        with tqdm(desc=text, bar_format="{desc}", leave=False, disable=quiet):
            plots.finish(figure)
            picture, width, several = plots.inline(figure, self._figures)
            if name is not None:
                png = io.BytesIO()
                figure.savefig(
                    png, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None}
                )
                self._pictures[name] = png.getvalue()
        plots.close(figure)
        self._into.append(
            Block(
                "figure",
                caption,
                picture=Markup(picture),  # the texts in it are escaped by matplotlib
                alt=alt or caption,
                width=width,
                several=several,
            )
        )

    def html(self, records: Iterable[Mapping[str, Any]] = ()) -> str:
        """Return the page.

        Arguments:
            records: rows of results; those with a column `commit` say what made them.

        Raises:
            ValueError: the page has no answer.
        """
        if not self._answer:
            raise ValueError(f"the report {self.title!r} has no answer; call report.answer(text)")
        headings = [block.text for block in self._page if block.kind == "heading"]
        return _template().render(
            title=self.title,
            answer=self._answer,
            blocks=self._page,
            contents=headings if len(headings) >= _CONTENTS else [],
            made=made_by(records),
            rendered=provenance(),
        )

    def write(self, path: Path, records: Iterable[Mapping[str, Any]] = ()) -> None:
        """Write the page, and the figures that have a name beside it; see `html`."""
        path.write_text(self.html(records), encoding="utf-8")
        for name, picture in self._pictures.items():
            path.with_name(f"{name}.png").write_bytes(picture)

    def _print_underlined(self, text: str, underline: str) -> None:
        self._print(f"{text}\n{underline * len(text)}")

    def _print(self, text: str) -> None:
        """Print a text, with its control characters as escapes: names come from anywhere, and could
        contain commands to a terminal."""
        if not self._quiet:
            print(_CONTROLS.sub(lambda c: c[0].encode("unicode_escape").decode(), text) + "\n")


_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_MADE = ("date", "commit", "command", "machine")


def made_by(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what made some rows: number of rows, date, commit, command and machine, in the order
    of the rows. Rows that do not say so are left out.

    >>> made_by([{"commit": "1f", "date": "2026-11-20"}, {"commit": "1f", "date": "2026-11-20"}])
    [{'rows': 2, 'date': '2026-11-20', 'commit': '1f', 'command': '', 'machine': ''}]
    """
    counts = Counter(
        tuple(str(row.get(name) or "") for name in _MADE) for row in records if row.get("commit")
    )
    return [{"rows": n, **dict(zip(_MADE, values, strict=True))} for values, n in counts.items()]


@cache
def _template() -> Template:
    script = (_PAGE / "report.js").read_text(encoding="utf-8")
    return template(_PAGE / "report.html", STYLE, script, anchor=anchor, code=code)


def template(place: Path, style: str, script: str, **filters: Any) -> Template:
    """Return the template of a page, in which whatever is shown is escaped.

    Arguments:
        style, script: our own, which the page includes as they are.
        filters: functions by which the template shows values.
    """
    environment = Environment(
        loader=FileSystemLoader(place.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    environment.globals.update(
        style=Markup(style), script=Markup(script), script_digest=digest(script)
    )
    return environment.get_template(place.name)


def digest(text: str) -> str:
    """Return the hash by which the policy of a page permits a script or a style."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def anchor(heading: str) -> str:
    """Return the identifier of a heading, by which it can be linked to.

    >>> anchor("Learning: Table 1 of the paper")
    'learning-table-1-of-the-paper'
    """
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"


def code(text: str) -> Markup:
    """Return a text as HTML, with what is between backticks as code.

    >>> print(code("`a < b`: 1 < 2"))
    <code>a &lt; b</code>: 1 &lt; 2
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


_NUMBER = re.compile(r"[+\-−–]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[+\-]?\d+)?")
_INTERVAL = re.compile(r"(\S+|\S+ %) ([\[(±].*)")
_SIZES = {"k": 1e3, "M": 1e6}


def sort_key(cell: str) -> float | None:
    """Return the first number of a cell, by which its column is sorted; None without one.

    >>> sort_key("1,234 ± 5"), sort_key("−.5 %"), sort_key("36k"), sort_key("n/a")
    (1234.0, -0.5, 36000.0, None)
    """
    match = _NUMBER.search(cell)
    if not match:
        return None
    text = match[0].replace(",", "").replace("−", "-").replace("–", "-")
    letter = cell[match.end() : match.end() + 2]
    return float(text) * (_SIZES.get(letter[:1], 1.0) if not letter[1:].isalpha() else 1.0)


def _cell(text: str, kind: str) -> Cell:
    if kind:
        return Cell(text)
    match = _INTERVAL.fullmatch(text)
    main, interval = match.groups() if match else (text, "")
    return Cell(main, interval, sort_key(text))


_LONG, _SENTENCE = 24, 60  # characters of cells that need a wide column, and that are no numbers


def _kind(cells: Sequence[str], first: bool) -> str:
    """Return "words" for a column of text, "words long" if it needs room, and "" for numbers."""
    longest = max(map(len, cells), default=0)
    begin = all(not cell or (cell[0].isalpha() and cell != "n/a") for cell in cells)
    if not (first or begin or longest > _SENTENCE):
        return ""
    return "words long" if longest > _LONG and not first else "words"


def text_table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a table in plain text, first column left, the others right.

    >>> print(text_table(["agent", "reward"], [["whittle", 1.5]]))
    agent    reward
    whittle     1.5
    """
    cells = [list(map(str, columns)), *(list(map(str, row)) for row in rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if j == 0 else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )
