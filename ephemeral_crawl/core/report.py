"""Reports: an HTML page with tables and figures; the tables are also printed as text."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ephemeral_crawl.core.results import provenance

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 82rem; margin: 2rem auto;
  padding: 0 1rem; }}
h1, h2 {{ line-height: 1.2; }} h2 {{ margin-top: 2.2rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #ddd; }}
.words {{ text-align: left; }} th {{ border-bottom: 2px solid #888; }}
caption {{ text-align: left; font-weight: 600; padding-bottom: .3rem; white-space: nowrap; }}
p {{ max-width: 50rem; }} img {{ max-width: 100%; }} figure {{ margin: 1rem 0; }}
figcaption, footer {{ color: #555; font-size: .9rem; }}
.scroll {{ overflow-x: auto; }}
</style>
<h1>{title}</h1>
{body}
<footer><h2>Provenance</h2><p>{source}</p></footer>
</html>
"""

Row = Sequence[Any]


class Report:
    """Collects headings, paragraphs, tables and figures, and prints the tables as it goes."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self._title, self._quiet = title, quiet
        self._html: list[str] = []
        self._pictures: dict[str, bytes] = {}
        self._text(title, "=")

    def heading(self, text: str) -> None:
        self._html.append(f"<h2>{escape(text)}</h2>")
        self._text(text, "-")

    def paragraph(self, text: str) -> None:
        self._html.append(f"<p>{escape(text)}</p>")
        self._print(text)

    def table(self, caption: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        words = [not j or _are_words([row[j] for row in rows]) for j in range(len(columns))]
        head = _cells("th", columns, words)
        body = "".join(f"<tr>{_cells('td', row, words)}</tr>\n" for row in rows)
        self._html.append(
            f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
            f"<tr>{head}</tr>\n{body}</table></div>"
        )
        self._print(f"{caption}\n{text_table(columns, rows)}")

    def figure(self, figure: Any, caption: str, name: str | None = None) -> None:
        """Embed a matplotlib figure and close it; with a name, it is also written as NAME.png
        beside the page."""
        import matplotlib.pyplot as plt

        picture = io.BytesIO()
        figure.savefig(
            picture, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None}
        )
        plt.close(figure)
        if name is not None:
            self._pictures[name] = picture.getvalue()
        data = base64.b64encode(picture.getvalue()).decode()
        self._html.append(
            f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def write(self, path: Path) -> None:
        source = " · ".join(f"{key}: {value}" for key, value in provenance().items())
        page = _PAGE.format(
            title=escape(self._title), body="\n".join(self._html), source=escape(source)
        )
        path.write_text(page, encoding="utf-8")
        for name, picture in self._pictures.items():
            path.with_name(f"{name}.png").write_bytes(picture)

    def _text(self, text: str, underline: str) -> None:
        self._print(f"{text}\n{underline * len(text)}")

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(f"{text}\n")


def _are_words(cells: Row) -> bool:
    return all(not str(cell) or (str(cell)[0].isalpha() and str(cell) != "n/a") for cell in cells)


def _cells(tag: str, row: Row, words: Sequence[bool]) -> str:
    return "".join(
        f"<{tag}{' class=words' if left else ''}>{escape(str(cell))}</{tag}>"
        for cell, left in zip(row, words, strict=True)
    )


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
