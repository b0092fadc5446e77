"""A page for every task of the benchmark, from the catalogue and the recorded references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from crawl_env.benchmark import TASKS
from crawl_env.benchmark.task import REFERENCES
from experiments.references import contents, recorded_references, task_page

PAGES = Path(__file__).parents[1] / "researchers" / "task"
PICTURES = "../../../results/references/"


class Contents(SphinxDirective):
    """The table of all tasks with links to their pages, which the sidebar lists in the order of the
    catalogue, by tier: ```{tasks}```."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(REFERENCES))
        pages = "\n".join(f"task/{name}" for name in TASKS)
        sidebar = f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n"
        return self.parse_text_to_nodes(f"{contents(recorded_references())}\n\n{sidebar}")


def write(app: Any) -> None:
    """Write the pages that have changed, and remove those of tasks that are gone."""
    PAGES.mkdir(exist_ok=True)
    known = recorded_references()
    for task in TASKS.values():
        page = PAGES / f"{task.name}.md"
        text = task_page(task, known.get(task.id, {}), PICTURES)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
    for page in PAGES.glob("*.md"):
        if page.stem not in TASKS:
            page.unlink()


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", write)
    app.add_directive("tasks", Contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
