"""The container and compose files, as far as they can be checked without a container runtime."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ephemeral_crawl.__main__ import PROGRAM
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.serve.admission import VARIABLE
from tests.ephemeral_crawl.serve.running import running

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "engineers" / "deploy"
CONTAINER = (FOLDER / "Containerfile").read_text()
COMPOSE, PROMETHEUS, ALERTS = (
    yaml.safe_load((FOLDER / name).read_text())
    for name in ("compose.yaml", "prometheus.yml", "alerts.yml")
)


def test_the_image_has_what_it_copies_and_installs():
    copied = [line.split()[1:-1] for line in re.findall(r"^COPY .*", CONTAINER, re.M)]
    assert all((ROOT / name).exists() for names in copied for name in names)
    assert {"pyproject.toml", "README.md", "LICENSE"} <= {n for names in copied for n in names}
    project = (ROOT / "pyproject.toml").read_text()
    for extra in re.search(r"\.\[(.*)\]", CONTAINER)[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.M), extra


def test_the_commands_are_understood():
    (words,) = re.findall(r"^CMD (.*)", CONTAINER, re.M)
    for command in (json.loads(words), COMPOSE["services"]["crawl"]["command"]):
        serve = PROGRAM.command_of(command)
        assert (serve.name(), serve.host) == ("serve", "0.0.0.0")
    assert VARIABLE in COMPOSE["services"]["crawl"]["environment"]


def test_the_services_fit_together_and_open_ports_of_this_machine_only():
    services = COMPOSE["services"]
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            name = volume.partition(":")[0]
            assert name in COMPOSE["volumes"] or (FOLDER / name).exists()
    (scrape,) = PROMETHEUS["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["crawl:8500"]}]
    secret = Path(scrape["authorization"]["credentials_file"])
    assert secret.name in COMPOSE["secrets"]
    assert secret.name in services["prometheus"]["secrets"]


def test_alerts_ask_for_metrics_that_exist():
    with running(Scheduler(":memory:", budget="20/h")) as client:
        client.get("/v1/status")
        known = set(re.findall(r"^\w+", client.get("/metrics").text, re.M)) | {"up"}
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    for rule in rules:
        asked = set(re.findall(r"ephemeral_crawl_\w+|\bup\b", rule["expr"]))
        assert asked, rule["alert"]
        assert asked <= known, rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_accepts_its_rules():
    subprocess.run(["promtool", "check", "rules", FOLDER / "alerts.yml"], check=True)
