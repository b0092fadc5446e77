"""README and documentation: their code runs, and what they state is what the code has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
}
# The cells of tutorials are executed here too: a build takes them from its cache.
PYTHON = {
    name: "\n".join(re.findall(r"^```(?:python|\{code-cell\} .*)\n(.*?)^```", text, re.M | re.S))
    for name, text in PAGES.items()
}


@pytest.mark.parametrize("page", [page for page, code in PYTHON.items() if code])
def test_python_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(PYTHON[page], page, "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_page_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", PAGES[page]):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"
