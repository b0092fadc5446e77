"""Which files of the project a call goes through."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("crawl_env", "agents", "ephemeral_crawl")


class Trace:
    """For `sys.setprofile`: the files of the project whose functions are called, in their order."""

    def __init__(self):
        self.files, self.on = [], True

    def __call__(self, frame, event, argument):
        if not (self.on and event == "call"):
            return
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in PACKAGES:
            self.files.append(file.relative_to(ROOT).as_posix())

    @property
    def changes(self):
        """How often the next call is in another file."""
        pairs = zip(self.files, self.files[1:], strict=False)
        return sum(before != after for before, after in pairs)
