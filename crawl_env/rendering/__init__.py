"""Pictures of a crawl: an array of pixels, a window, or a text for the terminal.

`Frame` is what a picture shows; `text` writes it, `Viewer` and `pictures` paint it with pygame
(the extra `render`), which is imported only then.
"""

from crawl_env.rendering.ansi import text
from crawl_env.rendering.frame import Frame
from crawl_env.rendering.viewer import Viewer, pictures

__all__ = ["Frame", "Viewer", "pictures", "text"]
