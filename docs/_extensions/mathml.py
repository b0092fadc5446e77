"""Equations as MathML, which browsers render themselves: no script and no network."""

from __future__ import annotations

from typing import Any, NoReturn

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util.logging import getLogger

logger = getLogger(__name__)


def convert(self: Any, node: nodes.Element, *, display: bool) -> None:
    tex = node.astext()
    try:
        self.body.append(latex2mathml.tex2mathml(tex, as_block=display))
    except MathError as error:
        logger.warning("equation %r: %s", tex, error, location=node)


def inline(self: Any, node: nodes.Element) -> NoReturn:
    convert(self, node, display=False)
    raise nodes.SkipNode


def block(self: Any, node: nodes.Element) -> NoReturn:
    self.body.append(self.starttag(node, "div", CLASS="math"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({node["number"]})</span>')
    convert(self, node, display=True)
    self.body.append("</div>")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
