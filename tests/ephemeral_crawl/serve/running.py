"""A server in this process, and a client that sends what it is told to."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.serve.admission import Limits, Token
from ephemeral_crawl.serve.receiver import Receiver
from ephemeral_crawl.serve.routes import make_app
from ephemeral_crawl.serve.server import Server, listen, logs, make_server
from ephemeral_crawl.serve.service import Service

SECRET = "correct-horse-battery-staple"
BEARER = {"Authorization": f"Bearer {SECRET}"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """Requests to a server; of a scheduler that is not to be used while it runs."""

    def __init__(self, port: int, scheduler: Scheduler, server: Server) -> None:
        self.port, self.scheduler, self.server = port, scheduler, server

    def ask(
        self, method: str, path: str, body: bytes | None = None, timeout: float = 60, **headers: str
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, fields)
            answer = connection.getresponse()
            text = answer.read().decode()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, method: str, arguments: Any, timeout: float = 60, **headers: str) -> Answer:
        headers = {"Content_Type": "application/json", **headers}
        body = json.dumps(arguments).encode()
        return self.ask("POST", f"/v1/{method}", body, timeout, **headers)

    def raw(self, data: bytes, timeout: float = 30, parts: int = 1) -> bytes:
        """Send bytes, in parts; return what comes until the server closes, or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            received, size = b"", -(-len(data) // parts)
            try:
                for first in range(0, len(data), size):
                    connection.sendall(data[first : first + size])
                    time.sleep(0.001 if parts > 1 else 0.0)
                while part := connection.recv(65536):
                    received += part
            except (TimeoutError, ConnectionResetError, BrokenPipeError):
                pass
            return received


@contextmanager
def running(
    scheduler: Scheduler,
    token: str | None = None,
    limits: Limits | None = None,
    public: bool | str = False,
) -> Iterator[Client]:
    """Serve a scheduler on a free port; with `public`, to hubs and IndexNow, too, which reach it
    there or at another address."""
    limits = limits or Limits()
    service = Service(scheduler)
    listener = listen("127.0.0.1", 0)
    address, receiver = f"http://127.0.0.1:{listener.getsockname()[1]}", None
    if public:
        place = public if isinstance(public, str) else address
        receiver = Receiver(service, ":memory:", place, allow_private=True)
    app = make_app(service, Token(token) if token else None, limits, receiver)
    server = make_server(app, service, limits)
    with logs():
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        client = Client(listener.getsockname()[1], scheduler, server)
        try:
            assert client.ask("GET", "/healthz").status == 200
            yield client
        finally:
            server.handle_exit(signal.SIGTERM, None)
            thread.join(60)
            assert not thread.is_alive()
