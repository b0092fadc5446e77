"""Rendering of an environment as an array of pixels, in a window, or as text for the terminal.

A `Frame` is the content of a picture. `text` renders it as text; `Viewer` and `pictures` draw it
with pygame (the extra `render`), which is imported only then.
"""

from crawl_env.rendering.ansi import text
from crawl_env.rendering.frame import Frame
from crawl_env.rendering.viewer import Viewer, pictures

__all__ = ["Frame", "Viewer", "pictures", "text"]
