"""Log lines of commands: levels, text or JSON, without credentials."""

import json
import logging
from datetime import datetime

from ephemeral_crawl.core.logs import logged
from ephemeral_crawl.live.reasons import redacted

LOG = logging.getLogger("ephemeral_crawl.test")
URL = "https://me:pw@a.example/feed?api_key=abc"


def write(form):
    with logged(("ephemeral_crawl",), "info", form, "%(levelname)s %(message)s", redacted):
        LOG.debug("not shown")
        LOG.info("fetched %s", URL, extra={"fields": {"source": URL, "new": 3}})
        try:
            raise OSError(f"cannot reach\n{URL}")
        except OSError:
            LOG.warning("failed", exc_info=True)
    LOG.warning("after the end")


def test_lines_of_json_can_be_read_and_have_no_credentials(capsys):
    write("json")
    err = capsys.readouterr().err
    first, second = (json.loads(line) for line in err.splitlines() if line.startswith("{"))
    assert datetime.fromisoformat(first.pop("time")).utcoffset() is not None
    public = "https://***@a.example/feed?api_key=***"
    assert first == {
        "level": "info",
        "logger": "ephemeral_crawl.test",
        "message": f"fetched {public}",
        "source": public,
        "new": 3,
    }
    assert second["level"] == "warning"
    assert second["exception"].endswith(f"OSError: cannot reach\n{public}")
    assert "pw" not in err
    assert "abc" not in err


def test_lines_of_text(capsys):
    write("text")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "INFO fetched https://***@a.example/feed?api_key=***"
    assert lines[1] == "WARNING failed"
    assert "pw" not in "".join(lines)
    assert not logging.getLogger("ephemeral_crawl").handlers, "the handler ends with the command"
