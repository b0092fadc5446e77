"""Four hundred hostile requests: none hangs, runs, leaks a secret or leaves a wrong number."""

import json
import math
import re

import pytest

from ephemeral_crawl.live import Scheduler
from tests.ephemeral_crawl.serve.running import running

MARK = "s3cr3t-of-the-file"
PYTHON = re.compile(
    r"datetime|timedelta|pathlib|dictionar|None|True|False|unhashable|' object|iterable|argument\(s"
)
HUGE = 10**400
NASTY = {
    "null": None,
    "true": True,
    "a negative number": -1,
    "a fraction": 1.5,
    "2**63": 2**63,
    "400 digits": HUGE,
    "1e308": 1e308,
    "nothing": "",
    "white space": " \t ",
    "a control character": "a\x00b",
    "a line break": "a\r\nSet-Cookie: x=1",
    "an escape sequence": "\x1b[2J",
    "text from the right": "a\u202eb",
    "half a character": "\ud800",
    "too long": "a" * 5000,
    "SQL": "'; DROP TABLE journal; --",
    "a template": "{{ 7 * 7 }} {% include '/etc/passwd' %}",
    "a path": "../../../../etc/passwd",
    "a list": [1, [2]],
    "an object": {"$gt": ""},
    "pairs": [["a", None]],
    "no time zone": "2026-11-23T10:00:00",
    "NaN as text": "NaN",
}
# Where each goes: method, and the arguments around it. Names of sources are free, so that odd but
# valid ones are accepted; the state is looked at after those of each place.
PLACES = {
    "lease.limit": ("lease", lambda x: {"limit": x}),
    "report.lease": ("report", lambda x: {"lease": x}),
    "report.items": ("report", lambda x: {"source": "known", "items": [[1.7e9, x]]}),
    "report.items, all": ("report", lambda x: {"source": "known", "items": x}),
    "report.at": ("report", lambda x: {"source": "known", "at": x}),
    "add.source": ("add", lambda x: {"source": x}),
    "add.cost": ("add", lambda x: {"source": "new", "cost": x}),
    "update.half_life": ("update", lambda x: {"source": "known", "half_life": x}),
    "update.paused": ("update", lambda x: {"source": "known", "paused": x}),
    "limit_host.host": ("limit_host", lambda x: {"host": x, "interval": 0}),
    "configure.budget": ("configure", lambda x: {"budget": x}),
    "configure.burst": ("configure", lambda x: {"burst": x}),
    "record.outcomes": ("record", lambda x: {"outcomes": [x]}),
    "record.outcomes, one": ("record", lambda x: {"outcomes": [{"lease": x}]}),
    "add_many.sources": ("add_many", lambda x: {"sources": [x]}),
}
BODIES = {
    "no body": b"",
    "no object": b"[]",
    "a number": b"1",
    "half an object": b'{"limit": 1',
    "two objects": b'{"limit": 1}{"limit": 2}',
    "NaN": b'{"limit": NaN}',
    "Infinity": b'{"limit": -Infinity}',
    "1e999": b'{"wait": 1e999}',
    "an argument twice": b'{"limit": 1, "limit": 10000}',
    "ten thousand digits": b'{"limit": ' + 10_000 * b"9" + b"}",
    "deep lists": 100_000 * b"[",
    "deep objects": 50_000 * b'{"a":' + b"1" + 50_000 * b"}",
    "deep and whole": b'{"limit":' + 900 * b"[" + 900 * b"]" + b"}",
    "not UTF-8": b'{"limit": "\xff\xfe"}',
    "UTF-16": '{"limit": 1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "XML with entities": b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "pickle": b"\x80\x04\x95\x19\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93.",
    "YAML": b"!!python/object/apply:os.system [id]",
    "a prototype": b'{"__proto__": {"limit": 1}}',
    "a class": b'{"__class__": "os"}',
    "a comment": b'{"limit": 1 /* one */}',
    "single quotes": b"{'limit': 1}",
}
PATHS = [
    *(
        "/v1/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/v1/%00",
        "/v1//lease",
        "//evil.example",
    ),
    *("/v1/lease/", "/v1/LEASE", "/static/../serve.py", "/?source=%00", "/?source=" + "a" * 5000),
    *("/?source=<script>alert(1)</script>", "/?source=%ff%fe", "/?source={{7*7}}", "/%ff"),
    *("/v1/explain?source=%0d%0aX-Bad:1", "/v1/explain?source[]=a", "/v1/explain", "/.env"),
    *("/v1/sources?limit=1e9", "/v1/sources?limit=-1", "/v1/sources?start=99999999999999999999"),
    *("/v1/sources?start=9223372036854775807", "/v1/next_due?source=", "/hooks/a?source=a&kind=b"),
]
RAW = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "two hosts": b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "no host": b"GET /v1/status HTTP/1.1\r\n\r\n",
    "an address as target": b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "CONNECT": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
    "TRACE": b"TRACE / HTTP/1.1\r\nHost: localhost\r\nCookie: a=b\r\n\r\n",
    "a negative length": b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    b"application/json\r\nContent-Length: -5\r\n\r\n{}",
    "a huge length": b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    b"application/json\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
    "two lengths": b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    b"\r\nContent-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
    "length and chunks": b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    b"application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunks": b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    b"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a compressed body": b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    b"application/json\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    "a websocket": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket"
    b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    "a long target": b"GET /" + 100_000 * b"a" + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "a header with NUL": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
    "a forged address": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: ::1\r\n"
    b"X-Forwarded-Host: evil.example\r\nX-Original-URL: /v1/status\r\n\r\n",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "passwd").write_text(MARK)
    scheduler = Scheduler(folder / "crawl.db", budget="36000/h", burst=1000)
    scheduler.add("known")
    with running(scheduler) as client:
        yield client
        assert client.get("/v1/explain?source=known").status == 200
    with Scheduler(folder / "crawl.db") as again:  # the journal can be replayed
        assert again.status().sources >= 1


def numbers(value):
    """Return all numbers in what JSON says."""
    if isinstance(value, dict):
        return [x for inner in value.values() for x in numbers(inner)]
    if isinstance(value, list):
        return [x for inner in value for x in numbers(inner)]
    return [value] if isinstance(value, int | float) else []


def whole(answer):
    """Check an answer."""
    assert answer.status < 500, answer.text
    assert "root:" not in answer.text
    assert MARK not in answer.text
    assert "Traceback" not in answer.text
    assert "set-cookie" not in answer.headers
    assert "x-bad" not in answer.headers
    if answer.status >= 400:
        assert set(answer.json) == {"error", "message"}
        assert len(answer.text) < 1000
        said = answer.json["message"]
        assert not PYTHON.search(said), said


def as_it_was(client):
    status = client.get("/v1/status")
    assert status.status == 200
    assert all(math.isfinite(x) for x in numbers(status.json))
    assert status.json["sources"] < 30


@pytest.mark.parametrize("place", PLACES)
def test_values(client, place):
    method, around = PLACES[place]
    for value in NASTY.values():
        before = client.scheduler._ledger.number
        answer = client.post(method, around(value))
        whole(answer)
        if answer.status >= 400:
            assert client.scheduler._ledger.number == before, (value, answer.text)
    as_it_was(client)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies(client, body):
    answer = client.ask("POST", "/v1/lease", body, Content_Type="application/json")
    assert answer.status in (400, 422)
    whole(answer)
    as_it_was(client)


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_paths(client, path):
    answer = client.get(path)
    assert "<script>alert" not in answer.text
    if answer.headers["content-type"].startswith("text/html"):
        assert "49" not in answer.text.partition("<h2")[2].partition("</h2>")[0]
        assert answer.status == 200
    else:
        whole(answer)
    as_it_was(client)


@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
def test_what_is_no_request(client, data):
    answer = client.raw(data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert not answer.startswith(b"HTTP/1.1 5")
    assert b"Cookie: a=b" not in answer
    assert client.get("/v1/status").status == 200


def test_what_was_reported_is_what_was_valid(client):
    """The hostile reports that were accepted were those of valid worths."""
    told = client.get("/v1/explain?source=known").json
    assert all(math.isfinite(x) and x >= 0 for x in numbers(told))
    assert told["worth"] <= 1e12
    assert json.loads(client.get("/v1/status").text)["counts"]["items"] <= 3
