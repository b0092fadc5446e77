"""The page of the documentation: its commands and its program run."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ephemeral_crawl.core.program import Command
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.serve.command import Serve
from tests.ephemeral_crawl.serve.running import BEARER, SECRET, running

TEXT = (Path(__file__).parents[3] / "docs" / "engineers" / "serve.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


@pytest.fixture(scope="module")
def client():
    with running(Scheduler(":memory:", budget="20/h")) as client:
        yield client


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl is installed")
def test_the_five_minutes(client):
    (script,) = [block for block in blocks("bash") if "curl" in block]
    script = script.replace(":8500/", f":{client.port}/")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    added, leased, reported, explained = re.findall(r"\{.*?\}(?=\{\"|$)", done.stdout, re.S)
    assert json.loads(added) == {"done": True}
    assert json.loads(leased)["leases"][0]["reason"] == "not fetched yet"
    assert json.loads(reported) == {"recorded": True}
    assert json.loads(explained)["source"] == "https://example.org/feed"


def test_the_crawler(client):
    client.post("add_many", {"sources": [{"source": name} for name in ("good", "bad")]})
    (code,) = blocks("python")
    program = {}
    exec(code.replace(":8500/", f":{client.port}/"), program)

    def fetch(source):
        if source == "bad":
            raise OSError
        return 200, [(None, 1.0)]

    assert program["crawl_once"](fetch) == [True, True]
    assert client.get("/v1/explain?source=bad").json["failures"] == 1


def test_every_route_and_metric_is_named(client):
    for path in client.get("/openapi.json").json["paths"]:
        assert f"`{path.removeprefix('/v1/')}" in TEXT, path
    shown = re.findall(r"`((?:ephemeral_crawl|…)_[a-z_]+)", TEXT)
    real = client.get("/metrics").text
    for name in shown:
        assert name.removeprefix("…") in real, name


def test_the_commands_of_the_page_have_these_options():
    import tyro

    commands = [line for block in blocks("bash") for line in block.splitlines()]
    commands += [
        line.partition("bin/")[2] for block in blocks("ini") for line in block.splitlines()
    ]
    served = [line for line in commands if line.startswith("ephemeral-crawl serve")]
    assert len(served) == 4
    for line in served:
        assert isinstance(tyro.cli(Serve, args=line.split()[2:]), Command)


def test_it_starts_fast_enough_to_ask_for_help():
    """Libraries of the server are not imported for the options alone."""
    code = (
        "import sys, ephemeral_crawl.serve.command; "
        "sys.exit(bool({'fastapi', 'uvicorn', 'numba', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_hooks_are_documented_where_there_is_a_token():
    with running(Scheduler(":memory:", budget="20/h"), SECRET) as guarded:
        paths = guarded.get("/openapi.json", **BEARER).json["paths"]
    assert {"/v1/hook", "/hooks/{key}"} <= set(paths)
