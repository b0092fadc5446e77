"""Whose requests are admitted, how much is taken, and what is not told."""

import asyncio
import base64
import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from crawl_env.errors import shown
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.reasons import redacted
from ephemeral_crawl.serve import admission
from ephemeral_crawl.serve.admission import (
    VARIABLE,
    Admission,
    Limits,
    Token,
    find_token,
    too_many,
)
from ephemeral_crawl.serve.errors import Refusal
from ephemeral_crawl.serve.metrics import Requests
from tests.ephemeral_crawl.serve.running import BEARER, SECRET, running
from tests.processes import command
from tests.refusals import refused

ROOT = Path(__file__).parents[3]
ROUTES = [
    *("lease", "report", "failed", "release", "record", "signal", "signal_many", "add", "add_many"),
    *("update", "remove", "rename", "pause", "resume", "configure", "limit_host", "adopt"),
]
PAGES = [
    *("/", "/?source=a", "/metrics", "/openapi.json", "/v1/status", "/v1/sources", "/v1/next_due"),
    *(
        "/v1/explain?source=a",
        "/v1/export?source=a",
        "/v1/hook?source=a",
        "/nope",
        "/docs",
        "/redoc",
    ),
]


def basic(password):
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


@pytest.fixture(scope="module")
def guarded():
    scheduler = Scheduler(":memory:", budget="60/h")
    scheduler.add("a")
    before = scheduler.status()
    with running(scheduler, SECRET, Limits(guesses=1e6)) as client:
        yield client
        after = client.get("/v1/status", **BEARER).json
        assert (after["sources"], after["counts"]["leases"]) == (before.sources, 0.0)


WRONG = {
    "none": {},
    "another": {"Authorization": "Bearer another-token-that-is-as-long"},
    "a part": {"Authorization": f"Bearer {SECRET[:-1]}"},
    "more": {"Authorization": f"Bearer {SECRET}x"},
    "empty": {"Authorization": "Bearer "},
    "another scheme": {"Authorization": f"Digest {SECRET}"},
    "a user": {"Authorization": "Basic " + base64.b64encode(f"{SECRET}:".encode()).decode()},
    "no base 64": {"Authorization": "Basic ***"},
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_outsiders_can_do_nothing(guarded, headers):
    for route in ROUTES:
        answer = guarded.post(route, {"source": "b"}, **headers)
        assert (answer.status, answer.json["error"]) == (401, "token")
    for page in PAGES:
        answer = guarded.get(page, **headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
    assert guarded.get("/healthz", **headers).text == "ok\n"
    assert guarded.ask("HEAD", "/healthz", **headers).status == 200  # as some monitors ask


def test_monitors_may_ask_for_headers_alone(guarded):
    for page in ("/", "/metrics", "/openapi.json", "/v1/status", "/healthz"):
        answer = guarded.ask("HEAD", page, **BEARER)
        assert (answer.status, answer.text) == (200, "")
        assert int(answer.headers["content-length"]) > 0
    assert guarded.ask("HEAD", "/").status == 401
    assert guarded.ask("HEAD", "/v1/lease", **BEARER).status == 405
    assert guarded.ask("OPTIONS", "/v1/lease", **BEARER).status == 405
    assert guarded.ask("DELETE", "/v1/sources", **BEARER).status == 405  # whatever its type


def test_the_token_admits_crawlers_and_browsers(guarded):
    assert guarded.get("/v1/status", **BEARER).status == 200
    assert guarded.get("/", Authorization=basic(SECRET)).status == 200
    assert guarded.get("/", Authorization=basic(SECRET), Host="crawl.example").status == 200


def test_tokens_are_not_guessed_fast():
    with running(Scheduler(":memory:", budget="60/h"), SECRET, Limits(guesses=1e-3)) as client:
        statuses = [
            client.get("/v1/status", Authorization=basic("x" * 20)).status for _ in range(4)
        ]
        assert statuses == [401, 429, 429, 429]
        assert client.get("/v1/status", **BEARER).status == 200  # who knows it is admitted


@pytest.fixture(scope="module")
def local():
    with running(Scheduler(":memory:", budget="60/h")) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8500", "0.0.0.0", ""]
)
def test_names_that_were_pointed_here_are_refused(local, host):
    for method, path in (("GET", "/"), ("GET", "/v1/status"), ("POST", "/v1/lease")):
        answer = local.ask(method, path, b"{}", Host=host, Content_Type="application/json")
        assert (answer.status, answer.json["error"]) == (403, "host")


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
def test_forms_of_other_sites_change_nothing(local, kind):
    answer = local.ask("POST", "/v1/add", b'{"source": "forged"}', Content_Type=kind)
    assert answer.status == 415
    assert local.ask("OPTIONS", "/v1/add", Origin="https://evil.example").status in (405, 415)
    assert local.get("/v1/sources").json["sources"] == []


def test_answers_keep_to_themselves(local):
    for path in ("/", "/v1/status", "/nope", "/metrics"):
        headers = local.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_sizes_and_rates_are_limited():
    limits = Limits(body=1000, batch=3)
    with running(Scheduler(":memory:", budget="60/h"), None, limits) as client:
        large = client.post("add", {"source": "a" * 2000})
        assert (large.status, large.json["error"]) == (413, "too_large")
        chunks = b"POST /v1/add HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        chunks += b"Transfer-Encoding: chunked\r\n\r\n" + 3 * (b"200\r\n" + 512 * b" " + b"\r\n")
        assert client.raw(chunks + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
        assert client.raw(chunks + 16 * (b"200\r\n" + 512 * b" " + b"\r\n")).startswith(
            b"HTTP/1.1 413"
        )
        for method, name in (
            *(("add_many", "sources"), ("update_many", "sources")),
            *(("record", "outcomes"), ("signal_many", "pings")),
        ):
            many = client.post(method, {name: [{"source": str(i)} for i in range(4)]})
            assert (many.status, many.json["error"]) == (413, "too_large"), method
        client.scheduler.add_many({"source": str(i)} for i in range(5))
        assert len(client.post("lease", {"limit": 5}).json["leases"]) == 3


def test_a_client_that_sends_a_large_body_first_gets_the_answer(local):
    large = local.post("add", {"source": "a" * (9 << 20)})  # its connection was reset
    assert (large.status, large.json["error"]) == (413, "too_large")


def test_only_strangers_are_limited_in_their_rate():
    # The first request is that of `running`.
    with running(Scheduler(":memory:", budget="60/h"), SECRET, Limits(rate=1e-3)) as client:
        for page in ("/healthz", "/v1/status", "/hooks/a?source=a&kind=b"):
            answer = client.get(page)
            assert (answer.status, answer.json["error"]) == (429, "rate")
            assert int(answer.headers["retry-after"]) > 100
        assert [client.get("/v1/status", **BEARER).status for _ in range(3)] == [200] * 3
    with running(Scheduler(":memory:", budget="60/h"), None, Limits(rate=1e-3)) as client:
        assert [client.get("/v1/status").status for _ in range(3)] == [200] * 3
    for wait, seconds in ((1e-3, "1"), (1.0, "1"), (2.5, "3")):
        assert too_many("requests", wait).headers == {"Retry-After": seconds}


def test_slow_clients_are_dropped():
    starts = [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /v1/add HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 20\r\n\r\n{",
    ]
    with (
        running(Scheduler(":memory:", budget="60/h"), None, Limits(patience=0.3)) as client,
        ExitStack() as stack,
    ):
        connections = []
        for start in starts:
            connection = socket.create_connection(("127.0.0.1", client.port), timeout=60)
            connections.append(stack.enter_context(connection))
            connection.sendall(start)
        for connection in connections:
            try:
                answer = connection.recv(65536)  # raises if the server waits
            except ConnectionResetError:
                answer = b""
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408")


def test_connections_are_limited():
    limits = Limits(connections=3, patience=1e3)
    with (
        running(Scheduler(":memory:", budget="60/h"), None, limits) as client,
        ExitStack() as stack,
    ):
        first, *_, last = (
            stack.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=10))
            for _ in range(5)
        )
        with suppress(ConnectionResetError):
            assert last.recv(1) == b""  # raises if the server waits
        first.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert first.recv(65536).startswith(b"HTTP/1.1 200")


def test_clients_that_do_not_read_are_dropped():
    scheduler = Scheduler(":memory:", budget="60/h")
    scheduler.add_many({"source": f"{i}{'x' * 2000}"} for i in range(2500))
    with running(scheduler, None, Limits(patience=0.5)) as client:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", client.port))
        request = b"GET /v1/sources?limit=2500 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(request)
        connections = client.server.server_state.connections
        for want in (True, False):  # it is there at first
            deadline = time.monotonic() + 60
            while (
                any(
                    x.transport.get_extra_info("peername")[1:] == connection.getsockname()[1:]
                    for x in list(connections)
                )
                != want
            ):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        connection.close()


def test_clients_that_read_late_but_in_time_are_kept(local):
    with socket.create_connection(("127.0.0.1", local.port), timeout=60) as socket_:
        socket_.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert socket_.recv(65536).startswith(b"HTTP/1.1 200")
        (connection,) = (
            x
            for x in local.server.server_state.connections
            if x.transport.get_extra_info("peername")[1] == socket_.getsockname()[1]
        )
        timers, done = [], threading.Event()

        def full_and_empty_again():
            connection.pause_writing()
            timers.append(connection._unread)
            connection.resume_writing()
            timers.append(connection._unread)
            done.set()

        connection.loop.call_soon_threadsafe(full_and_empty_again)
        assert done.wait(60)
        assert timers[0].cancelled()
        assert timers[1] is None


def test_endless_headers_are_dropped(local):
    with socket.create_connection(("127.0.0.1", local.port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        endless = 10_000 * (b"X: " + 1000 * b"y" + b"\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(endless)
    assert local.get("/healthz").status == 200


def test_each_request_of_a_connection_has_headers_of_its_own(local):
    connection = http.client.HTTPConnection("127.0.0.1", local.port, timeout=60)
    for _ in range(3):
        connection.request("GET", "/healthz", headers={"X": 20_000 * "x"})
        assert connection.getresponse().read() == b"ok\n"
    connection.close()


HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"POST /v1/add HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ADD = b'e\r\n{"source":"a"}\r\n0\r\n'
LONG = 32 * 1024 * b"x"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/status HTTP/1.1\r\n" + HEAD + b"X: " + LONG[:-200] + b"\r\n\r\n", 200),
        (b"GET /v1/status HTTP/1.1\r\n" + HEAD + b"X: " + LONG + b"\r\n\r\n", 431),
        (b"GET /v1/status HTTP/1.1\r\n" + HEAD + 3000 * b"X: abcdef\r\n" + b"\r\n", 431),
        (
            b"GET /?" + LONG[:-100] + b" HTTP/1.1\r\n" + HEAD + b"X: " + LONG[:200] + b"\r\n\r\n",
            431,
        ),
        (CHUNKED + 20_000 * b"1\r\n \r\n" + ADD + b"X: y\r\n\r\n", 200),
        (CHUNKED + ADD + b"X: " + LONG + b"\r\n\r\n", None),  # trailers
        (CHUNKED + b"e;" + 20 * LONG, None),
        (b"GET /v1/status HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/status HTTP/1.1\r\n" + HEAD + HEAD + b"\r\n", 400),
        (b"GET /v1/status HTTP/1.1\r\n" + HEAD + b"host: evil.example\r\n\r\n", 400),
        (CHUNKED.replace(b"Host: localhost\r\n", b"") + ADD + b"Host: localhost\r\n\r\n", 400),
        (CHUNKED + ADD + b"Host: evil.example\r\n\r\n", 200),
        (b"GET /v1/status HTTP/1.1\r\n" + HEAD + b"X: " + 1000 * b"x" + b"\r\nX: y\r\n\r\n", 200),
        (b"GET /v1/status HTTP/1.0\r\nHost: [::1]:80\r\n\r\n", 200),
        (b"GET /v1/status HTTP/1.0\r\n\r\n", 403),
    ],
)
def test_headers_are_limited_and_name_one_host(local, head, status, caplog):
    """However they arrive; trailers, after the body, are no headers."""
    request = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    for parts in (1, 2, 40):
        answer = local.raw(request, parts=parts)
        if not answer:  # it was lost with the connection: the body was being read, or sent
            assert status is None or (status >= 400 and parts > 1)
        else:
            assert answer[len("HTTP/1.1 ") :].startswith(str(status).encode())
        changed = local.get("/v1/sources").json["sources"]
        assert changed == (["a"] if status == 200 and head.startswith(b"POST") else [])
        local.post("remove", {"source": "a"})
    assert "Traceback" not in caplog.text


def test_a_full_disk_is_told_in_a_line_for_each_request(tmp_path, capfd):
    with Scheduler(tmp_path / "crawl.db", budget="60/h") as scheduler, running(scheduler) as client:
        ((pages,),) = scheduler._ledger.journal.rows("PRAGMA page_count")
        scheduler._ledger.journal.rows(f"PRAGMA max_page_count = {pages}")
        many = [{"source": f"{i}" * 400} for i in range(1000)]
        failed = client.post("add_many", {"sources": many})
        assert (failed.status, failed.json["error"]) == (503, "store")
        assert client.post("add", {"source": "a"}).status == 200  # there is room for this
    lines = capfd.readouterr().err.splitlines()
    (told,) = [line for line in lines if "make room" in line]
    assert not any("Traceback" in line for line in lines)
    assert "/v1/add_many failed: the store cannot be used" in told


def test_no_secret_is_told(caplog, capfd):
    url = "https://user:hunter2@e.example/feed?api_key=s3cr3t&x=1"
    scheduler = Scheduler(":memory:", budget="60/h")
    scheduler.add(url)
    with running(scheduler, SECRET) as client:
        told = [
            client.get("/v1/explain?source=https://user:hunter2@o.example/", **BEARER),
            client.post("add", {"source": url}, **BEARER),
            client.post("rename", {"source": url, "name": url + "\n"}, **BEARER),
            client.post("lease", {url: 1}, **BEARER),
            client.get("/", **BEARER),
            client.get("/?source=hunter2", **BEARER),
            client.get("/metrics", **BEARER),
            client.get(f"/v1/status?token={SECRET}", Authorization="Bearer " + SECRET[::-1]),
        ]
        assert [answer.status for answer in told] == [404, 409, 422, 422, 200, 200, 200, 401]
        for answer in told:
            for secret in (SECRET, "s3cr3t"):
                assert secret not in answer.text + str(answer.headers)
            assert "hunter2@" not in answer.text
        assert client.post("lease", {}, **BEARER).json["leases"][0]["source"] == url  # who fetches

        def broken(*_):
            raise RuntimeError(f"about {url}")

        scheduler.status = broken
        failed = client.get("/v1/status", **BEARER)
        assert (failed.status, failed.json["error"]) == (500, "failed")
        assert "about" not in failed.text
        del scheduler.status
    told = capfd.readouterr()
    assert "RuntimeError" in told.err
    for secret in (SECRET, "hunter2", "s3cr3t"):
        assert secret not in told.err + told.out


def test_tokens_are_kept_in_files_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(VARIABLE, raising=False)
    file = tmp_path / "token"
    made = find_token(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text().strip()
    assert len(text) >= 40
    assert text not in capsys.readouterr().out
    assert made.fits(text)
    assert find_token(file).fits(text)
    assert capsys.readouterr().err == ""
    for mode in (0o640, 0o604):
        file.chmod(mode)
        find_token(file)
        assert "chmod 600" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, SECRET)
    with refused("give one of them"):
        find_token(file)
    monkeypatch.setenv(VARIABLE, SECRET)
    assert find_token(None).fits(SECRET)
    assert VARIABLE not in os.environ
    for bad in ("short", "a" * 15, "é" * 20, "a\tb" * 10):
        with refused("give at least 16"):
            Token(bad)


def test_credentials_of_urls_are_hidden():
    assert redacted("http://a:b@c/d https://e@f/?key=g&h=i#j") == (
        "http://***@c/d https://***@f/?key=***&h=i#j"
    )
    assert redacted("https://e.example/@user/feed?page=1") == "https://e.example/@user/feed?page=1"
    assert (
        redacted("https://a:p@'q@c/d?pass=x#id_token=y") == "https://***@c/d?pass=***#id_token=***"
    )
    long = "https://me:" + "hunter2" * 40
    assert "hunter2" not in redacted(f"no source {shown(long + '@c/d')}")
    assert redacted(shown("https://c:80/d" + "x" * 200)).startswith("'https://c:80/dxx")


@pytest.mark.parametrize(
    ("start", "odd"), [("?", "key"), ("", "://@?"), ("://", "aaa"), ("", "?a?a"), ("://", "a:.")]
)
def test_the_time_to_hide_credentials_is_linear(start, odd):
    def took(size):
        begun = time.thread_time()  # what other threads and processes do does not count
        redacted(start + size * odd)
        return time.thread_time() - begun

    times = [(took(10_000), took(80_000)) for _ in range(7)]  # in turns, on the same machine
    small, large = map(min, zip(*times, strict=True))
    assert large < 24 * small  # 8 if it is linear, 64 if it is quadratic


def test_bodies_without_an_end_do_not_hold_connections():
    with running(Scheduler(":memory:", budget="60/h"), SECRET, Limits(patience=0.5)) as client:
        for target in ("/", "/healthz"):
            with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
                head = f"GET {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.sendall(head.encode())
                with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012
                    for _ in range(600):  # a minute
                        connection.sendall(b"1\r\nx\r\n")
                        time.sleep(0.1)


def test_bodies_are_kept_up_to_the_limit_unless_anybody_can_send_them():
    async def receive():
        return {"type": "http.request", "body": b"x" * 1000}

    admission = Admission(None, {}, Token(SECRET), Limits(body=1000), Requests())
    for path, kept in (("/hooks/a", b""), ("/healthz", b""), ("/v1/add", b"x" * 1000)):
        scope = {"type": "http", "path": path, "headers": [(b"content-length", b"1000")]}
        assert asyncio.run(admission._body(scope, receive)) == kept
    others = [("/v1/add", size) for size in (b"8001", b"-1", b"1e3", b"9" * 5000)]
    for path, size in (("/hooks/a", b"1001"), *others):
        scope |= {"path": path, "headers": [(b"content-length", size)]}
        with pytest.raises(Refusal, match="large"):
            asyncio.run(admission._body(scope, receive))


def test_the_command_serves_and_stops_when_asked(tmp_path):
    words = [sys.executable, "-m", "ephemeral_crawl", "serve", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    open_to_all = ("serve", "--port", 0, "--host", "0.0.0.0", "--budget", "6/h")
    stopped = command(*open_to_all, cwd=tmp_path, stderr=subprocess.PIPE)
    _, said = stopped.communicate(timeout=60)
    assert stopped.returncode == 1
    assert "--token-file" in said
    assert not list(tmp_path.iterdir())
    served = subprocess.Popen(
        [*words, "--budget", "6/h", "--token-file", "token"],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        lines = [served.stdout.readline(), served.stdout.readline()]
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", lines[1])[1])
        token = (tmp_path / "token").read_text().strip()
        assert token not in "".join(lines)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def post(path, body):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.text = answer.read()
            connection.close()
            return answer

        assert post("/v1/add", b'{"source": "a"}').status == 200
        assert b'"a"' in post("/v1/lease", b"{}").text
        waiting = []
        thread = threading.Thread(
            target=lambda: waiting.append(post("/v1/lease", b'{"wait": "30s"}').text)
        )
        thread.start()
        time.sleep(0.3)
        served.send_signal(signal.SIGTERM)
        thread.join(60)
        assert waiting == [b'{"leases":[]}']
        _, err = served.communicate(timeout=60)
        assert (served.returncode, err) == (0, "")
    finally:
        served.kill()
        served.wait()
    with Scheduler(tmp_path / "crawl.db") as scheduler:
        assert scheduler.status().leased == 1


def test_the_rates_of_the_latest_clients_alone_are_kept(monkeypatch):
    monkeypatch.setattr(admission, "_MOST_CLIENTS", 2)
    rate = admission.Rate(1.0, burst=1.0)
    assert [rate.wait(client, now=0.0) for client in "abab"] == [0.0, 0.0, 1.0, 1.0]
    rate.wait("c", now=0.0)
    assert rate.wait("b", now=0.0) == 1.0
    assert rate.wait("a", now=0.0) == 0.0  # forgotten: it was not seen for longest


def test_a_bucket_is_filled_again_up_to_its_size():
    rate = admission.Rate(0.5, burst=2.0)
    times = [0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 100.0, 100.0, 100.0]
    waits = [rate.wait("a", now) for now in times]
    assert waits == [0.0, 0.0, 2.0, 1.0, 0.0, 2.0, 0.0, 0.0, 2.0]
