"""Configuration of the documentation; `make docs` builds it."""

import os
import sys
from importlib.metadata import distribution
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_extensions")]

import public  # noqa: E402

import crawl_env  # noqa: E402

project = "ephemeral-crawl"
author = "The ephemeral-crawl authors"
copyright = author
release = crawl_env.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "figures",
    "tasks",
]
exclude_patterns = ["_*"]
suppress_warnings = [
    "config.cache",  # autosummary_context holds a function
    "myst-nb.lexer",  # cells that are not executed (nb_execution_mode=off) have no language
]
nitpicky = True
nitpick_ignore_regex = [
    # Types of other packages: their inventories would have to be fetched from the network.
    ("py:.*", r"(numpy|gymnasium|gym|torch|stable_baselines3|sb3_contrib|collections|np|nn)\b.*"),
    ("py:(class|exc|obj)", r"(?s).*"),
]

# Pages
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # in the notebooks' kernel

# Equations: MathJax in one file, with its font, so that they show without a network.
mathjax = distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline")
mathjax_path = "tex-svg.js"

# API pages, from __all__
default_role = "py:obj"
autosummary_ignore_module_all = False
autosummary_imported_members = True
autosummary_context = {"home": public.home}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "FloatArray", "IntArray", "NDArray")}
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Looks
highlight_language = "none"  # blocks that name no language are shown as they are
pygments_dark_style = "github-dark"
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"ephemeral-crawl {release}"
html_static_path = ["_static", str(mathjax / "static" / "mathjax" / mathjax_path)]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
