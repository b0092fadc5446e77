"""What a crawler asks for over HTTP is what `Scheduler` does."""

import re
import sqlite3
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ephemeral_crawl.live import Scheduler
from tests.ephemeral_crawl.live.world import HOUR
from tests.ephemeral_crawl.serve.running import BEARER, SECRET, running


@pytest.fixture
def client():
    with running(Scheduler(":memory:", budget="3600/h", burst=500)) as client:
        yield client


def test_a_crawl_over_http(client):
    sources = [{"source": f"https://e.example/{i}", "host": "e.example"} for i in range(20)]
    assert client.post("add_many", {"sources": sources}).json == {"added": 20}
    more = {"sources": [*sources, {"source": "x"}]}
    assert client.post("add_many", more).status == 409
    assert client.post("add_many", {**more, "exist_ok": True}).json == {"added": 1}
    assert client.post("pause", {"source": "x"}).json == {"done": True}
    start = time.time()
    leases = client.post("lease", {"limit": 7, "timeout": "2min"}).json["leases"]
    assert len(leases) == 7
    assert leases[0]["reason"] == "not fetched yet"
    assert start + 119 < leases[0]["expires"] < time.time() + 121
    ids = [lease["id"] for lease in leases]
    now = time.time()
    items = [[now - HOUR * k, 1.0] for k in range(9)]
    assert client.post("report", {"lease": ids[0], "items": items}).json == {"recorded": True}
    assert client.post("failed", {"lease": ids[1], "status": 500, "reason": "gone"}).json == {
        "recorded": True
    }
    assert client.post("release", {"lease": ids[2]}).json == {"recorded": True}
    outcomes = [
        {"lease": ids[3], "outcome": "fetched", "items": [["2026-11-20T10:00:00+01:00", 2]]},
        {"lease": ids[0], "outcome": "failed"},  # reported before
        {"lease": ids[4], "outcome": "released"},
        {"source": "x", "outcome": "fetched", "items": [[None, 1]]},
    ]
    assert client.post("record", {"outcomes": outcomes}).json == {
        "results": [True, False, True, True]
    }
    gone = client.post("report", {"lease": ids[0]})
    assert (gone.status, gone.json["error"]) == (410, "reported")
    told = client.get(f"/v1/explain?source={leases[0]['source']}").json
    assert told["rate"] > 0.5
    assert told["due_at"] == client.get(f"/v1/next_due?source={told['source']}").json["due_at"]
    assert client.get("/v1/next_due").json["due_at"] <= time.time()
    assert client.post("signal", {"source": told["source"], "kind": "websub"}).status == 200
    pings = [{"source": "x"}, {"source": told["source"], "at": now}]
    assert len(client.post("signal_many", {"pings": pings}).json["worths"]) == len(pings)
    assert client.post("update", {"source": "x", "max_interval": "6h"}).status == 200
    assert client.post("rename", {"source": "x", "name": "y"}).status == 200
    assert client.post("resume", {"source": "y"}).status == 200
    assert client.post("limit_host", {"host": "e.example", "interval": "10s"}).status == 200
    assert client.post("remove", {"source": told["source"]}).status == 200
    assert client.post("configure", {"budget": "7200/h", "burst": 300}).json == {"done": True}
    assert client.get("/v1/status").json["budget"] == 7200
    status = client.get("/v1/status").json
    assert (status["sources"], status["failing"], status["paused"]) == (20, 1, 0)
    assert status["counts"] | {"collected": 0} == {
        "leases": 7, "fetched": 3, "failed": 1, "released": 2, "pings": 2, "items": 11,
        "collected": 0, "looks": 0, "looks_cost": 0, "looks_worth": 0,
    }  # fmt: skip
    first = client.get("/v1/sources?limit=15&text=e.example").json
    rest = client.get(f"/v1/sources?limit=15&text=e.example&start={first['next']}").json
    assert (len(first["sources"]), len(rest["sources"]), rest["next"]) == (15, 4, 0)


def test_a_lease_that_has_expired_cannot_be_released_and_needs_not():
    now = [HOUR]
    scheduler = Scheduler(":memory:", budget="1/h", clock=lambda: now[0])
    scheduler.add("a")
    with running(scheduler) as client:
        (lease,) = client.post("lease", {"timeout": "10min"}).json["leases"]
        now[0] += HOUR
        answer = client.post("release", {"lease": lease["id"]})
        assert (answer.status, answer.json["error"]) == (410, "expired")
        for words in ("1970-01-01T01:10:00Z", "units that it cost are spent", "Nothing needs to"):
            assert words in answer.json["message"]
        assert client.post("report", {"lease": lease["id"]}).status == 200
        answer = client.post("release", {"lease": lease["id"]})
        assert (answer.status, answer.json["error"]) == (410, "reported")


@pytest.mark.parametrize(
    ("method", "arguments", "status", "error", "words"),
    [
        ("report", {"lease": 99}, 404, "unknown_lease", "there was no lease 99"),
        ("report", {"source": "z"}, 404, "unknown_source", "'z'; check its name, or `add` it"),
        ("report", {"source": 5}, 422, "invalid", "source is 5; a source is named by text"),
        ("signal", {"source": 5}, 422, "invalid", "source is 5; a source is named by text"),
        ("report", {}, 422, "invalid", "give either the `lease` or the `source`"),
        ("report", {"lease": "1"}, 422, "invalid", "lease is '1'; it must be a whole number"),
        ("release", {}, 422, "invalid", "lease is missing"),
        ("add", {"source": "a"}, 409, "source_exists", "use `update`"),
        ("rename", {"source": "a", "name": "b"}, 409, "source_exists", "remove one of the two"),
        ("record", {"outcomes": [{"source": "a"}, {"source": "z"}]}, 404, "unknown_source", "'z'"),
        ("signal_many", {"pings": [{"source": "z"}]}, 404, "unknown_source", "'z'"),
        ("lease", {"limits": 3}, 422, "invalid", "there is no argument limits"),
        ("lease", {"limit": -1}, 422, "invalid", "limit is -1; it must be a whole number"),
        ("lease", {"wait": "soon"}, 422, "invalid", "give a duration such as '5min'"),
        ("lease", [], 422, "invalid", "the body is []; it must be an object"),
        ("lease", {"limit": True}, 422, "invalid", "limit is true; it must be a whole number"),
        ("record", {"outcomes": [None]}, 422, "invalid", "outcomes 0 is null; it must be"),
        ("configure", {}, 422, "invalid", "no setting is given"),
        ("configure", {"budget": 20}, 422, "invalid", "budget is 20; give a rate such as '20/h'"),
        ("limit_host", {"host": {}, "interval": 1}, 422, "invalid", "host is {}; give its name"),
    ],
)
def test_errors_say_what_to_do(errors, method, arguments, status, error, words):
    events = errors.scheduler._ledger.number
    answer = errors.post(method, arguments)
    assert (answer.status, answer.json["error"]) == (status, error)
    assert words in answer.json["message"]
    assert errors.scheduler._ledger.number == events  # nothing is recorded in part
    assert "source 0" not in answer.json["message"]
    assert set(answer.json) == {"error", "message"}


def test_without_a_token_there_are_no_hooks(errors):
    answer = errors.get("/v1/hook?source=a")
    assert answer.status == 404
    assert "--token-file" in answer.json["message"]


@pytest.fixture(scope="module")
def errors():
    scheduler = Scheduler(":memory:", budget="60/h")
    scheduler.add_many({"source": name} for name in "ab")
    with running(scheduler) as client:
        yield client
        assert client.get("/v1/status").json["counts"]["fetched"] == 0  # all or nothing


def test_a_lease_waits_until_something_is_due(client):
    found = []
    lease = {"limit": 5, "wait": "1min"}
    waiting = [
        threading.Thread(target=lambda: found.append(client.post("lease", lease, 90).json))
        for _ in range(3)
    ]
    for thread in waiting:
        thread.start()
    time.sleep(0.2)
    assert found == []
    for name in ("one", "two"):
        assert client.post("add", {"source": name}).status == 200
        deadline = time.monotonic() + 60
        while len(found) < (1 if name == "one" else 2) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert [[x["source"] for x in answer["leases"]] for answer in found] == [["one"], ["two"]]
    client.server.handle_exit(15, None)  # the third returns with nothing when the server ends
    for thread in waiting:
        thread.join(60)
    assert found[2:] == [{"leases": []}]


def test_every_example_of_the_documentation_is_understood(client):
    documented = client.get("/openapi.json").json
    schemas = documented["components"]["schemas"]
    assert set(schemas["Problem"]["properties"]) == {"error", "message"}
    lease = schemas["Leases"]["properties"]["leases"]["items"]["properties"]["id"]
    assert lease["format"] == schemas["ReportBody"]["properties"]["lease"]["format"] == "int64"
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    examples = 0
    for path, operations in documented["paths"].items():
        for method, operation in operations.items():
            codes = set(operation["responses"])
            refused = [told for code, told in operation["responses"].items() if code >= "400"]
            assert all(told["content"] == problem for told in refused), path
            assert operation["description"], path
            assert {"401", "429"} <= codes or path == "/healthz"
            if method != "post":
                continue
            reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            for example in schemas[reference.rpartition("/")[2]]["examples"]:
                example = {k: v for k, v in example.items() if k != "wait"}
                answer = client.post(path.removeprefix("/v1/"), example)
                assert str(answer.status) in codes - {"422"}, (path, answer.text)
                examples += 1
    assert examples == 18


def test_a_generated_client_that_sends_defaults_changes_nothing_else(client):
    schemas = client.get("/openapi.json").json["components"]["schemas"]

    def defaults(schema):
        fields = schema["properties"].items()
        values = {name: field["default"] for name, field in fields if "default" in field}
        for name, value in values.items():
            kind = schema["properties"][name].get("anyOf", [{}])[0].get("type")
            assert kind != "string" or isinstance(value, str), name  # or it is sent as a string
        return values

    client.post("add", {"source": "a", "cost": 3.0, "weight": 2.0, "min_interval": "10min"})
    before = client.scheduler.settings("a")
    many = schemas["UpdateManyBody"]["properties"]["sources"]["items"]
    for settings in (defaults(schemas["UpdateBody"]), defaults(many)):
        answer = client.post("update", {"source": "a", **settings, "max_interval": "24h"})
        assert answer.status == 200
        assert client.scheduler.settings("a") == {**before, "max_interval": 86400.0}
    lease = client.post("lease", defaults(schemas["LeaseBody"])).json["leases"][0]["id"]
    outcome = defaults(schemas["RecordBody"]["properties"]["outcomes"]["items"])
    outcomes = [
        {**outcome, "outcome": "released", "lease": lease},
        {**outcome, "outcome": "fetched", "source": "a"},
        {**outcome, "outcome": "failed", "source": "a"},
    ]
    assert client.post("record", {"outcomes": outcomes}).json == {"results": [True] * 3}
    assert client.post("report", {**defaults(schemas["ReportBody"]), "source": "a"}).status == 200


def test_metrics_are_those_of_prometheus_and_bounded(client):
    client.post("add", {"source": "https://user:pw@secret.example/"})
    for path in ("/nope", "/v1/explain?source=a", "/v1/%00", "/v1/lease"):
        client.get(path)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["ephemeral_crawl_sources"].samples[0].value == 1
    assert families["ephemeral_crawl_budget_units_per_second"].samples[0].value == 1.0
    assert families["ephemeral_crawl_leases"].type == "counter"
    assert all(re.fullmatch("(ephemeral_crawl|process)_[a-z_]+", name) for name in families)
    requests = families["ephemeral_crawl_http_requests"].samples
    routes = {sample.labels["route"] for sample in requests}
    assert routes <= {"/healthz", "/metrics", "/v1/add", "/v1/explain", "/v1/lease", "other"}
    assert "secret" not in answer.text


def test_hooks_ping_one_source_and_need_no_token():
    scheduler = Scheduler(":memory:", budget="60/h")
    scheduler.add_many({"source": name} for name in ("a&b", "c"))
    with running(scheduler, SECRET) as client:
        path = client.get("/v1/hook?source=a%26b&kind=websub", **BEARER).json["path"]
        verified = client.get(f"{path}&hub.mode=subscribe&hub.topic=t&hub.challenge=abc123")
        assert (verified.status, verified.text) == (200, "abc123")
        assert verified.headers["content-type"].startswith("text/plain")
        assert client.ask("POST", path, b"<rss/>", Content_Type="application/rss+xml").status == 204
        for other in (
            path.replace("a%26b", "c"),
            path.replace("websub", "x"),
            "/hooks/1?source=c&kind=x",
        ):
            assert client.ask("POST", other, b"").status == 404
        assert client.get("/v1/status", **BEARER).json["counts"]["pings"] == 1
        assert client.get("/v1/hook?source=z", **BEARER).status == 404


def test_two_servers_share_a_file(tmp_path):
    store = f"sqlite:///{tmp_path}/crawl.db"
    with (
        running(Scheduler(store, budget="100/h")) as one,
        running(Scheduler(store, budget="100/h")) as two,
    ):
        one.post("add_many", {"sources": [{"source": str(i)} for i in range(6)]})
        leases = [
            [x["source"] for x in client.post("lease", {"limit": 3}).json["leases"]]
            for client in (one, two)
        ]
        assert sorted(leases[0] + leases[1]) == list("012345")
    with Scheduler(store) as again:
        assert again.status().leased == 6


@pytest.mark.parametrize(
    "change", ["DROP TABLE journal", "INSERT INTO journal VALUES (2, 'damaged', 0)"]
)
def test_a_store_that_fails_is_an_error_of_the_server(tmp_path, change):
    store = tmp_path / "crawl.db"
    with running(Scheduler(store, budget="100/h")) as client:
        with sqlite3.connect(store) as connection:
            connection.execute(change)
        connection.close()
        answer = client.post("add", {"source": "a"})
        assert (answer.status, answer.json["error"]) == (503, "store")
        client.server._service.scheduler.close = lambda: None  # it cannot be closed, either
