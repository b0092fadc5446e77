"""A server on loopback that answers with given bytes, for a loop in accelerated time."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from experiments.live.over_http import WarpedLoop

# A certificate of 127.0.0.1, which is signed by itself, and its key.
CERTIFICATE = Path(__file__).with_name("localhost.pem")
Answer = bytes | Callable[[dict[str, str]], bytes]


def message(status: int, body: bytes = b"", **headers: str) -> bytes:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Something"]
    lines += [f"{k}: {v}" for k, v in ({"Content-Length": str(len(body))} | fields).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def feed(*numbers: int, head: str = "", date: str = "Tue, 14 Nov 2023 20:00:00 GMT") -> bytes:
    items = "".join(
        f"<item><guid>{n}</guid><title>Item {n}</title><pubDate>{date}</pubDate></item>"
        for n in numbers
    )
    return f"<rss version='2.0'><channel><title>Feed</title>{head}{items}</channel></rss>".encode()


def packed(body: bytes, level: int = 9) -> bytes:
    return gzip.compress(body, level)


class Site:
    """Answers by path; `asked` holds the paths and headers of the requests."""

    def __init__(self, loop: WarpedLoop, *, secure: bool = False) -> None:
        self.loop, self.secure = loop, secure
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.port = 0
        self.silence = 0.0  # seconds before every answer

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http{'s' * self.secure}://{host}:{self.port}{path}"

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Site]:
        tasks: set[asyncio.Task[None] | None] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                path = (await reader.readline()).decode().split()[1]
                headers = {}
                while text := (await reader.readline()).decode().strip():
                    name, _, value = text.partition(": ")
                    headers[name.lower()] = value
                self.asked.append((path, headers))
                with self.loop.request(-1):
                    await asyncio.sleep(self.silence)
                answer = self.answers.get(path, message(404))
                writer.write(answer(headers) if callable(answer) else answer)
                await writer.drain()
            writer.close()

        context = None
        if self.secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(t for t in tasks if t), return_exceptions=True)
