"""Figures of the record of speed, results/throughput/figures.csv, so that no page copies them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ephemeral_crawl.core.results import read_csv
from experiments.core.clock import Figure

RECORD = Path(__file__).parents[2] / "results" / "throughput" / "figures.csv"


class Figures(SphinxDirective):
    """Parts of the record, or what made it: ```{figures} whittle scheduler```."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RECORD))
        rows = read_csv(RECORD)
        parts = self.arguments[0].split() if self.arguments else []
        text = table([Figure.of(row) for row in rows if row["part"] in parts])
        return self.parse_text_to_nodes(text if parts else made(rows))


def table(figures: list[Figure]) -> str:
    """Return figures as a table in Markdown."""
    lines = ["| | measured | wanted |", "| --- | --- | --- |"]
    for figure in figures:
        wanted = f"{figure.sense} {figure.limit:g}" if figure.sense else ""
        lines.append(f"| {figure.what} | {figure.value:.3g} {figure.unit} | {wanted} |")
    return "\n".join(lines)


def made(rows: list[dict[str, str]]) -> str:
    """Return a sentence on the machine and the versions."""
    first = rows[0]
    versions = ", ".join(f"{name} {first[name]}" for name in ("python", "numpy", "numba"))
    return f"Measured on {first['date']} on {first['machine']}; {versions}."


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("figures", Figures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
