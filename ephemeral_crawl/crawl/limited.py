"""Parsing in a process of limited time and memory: no document, however made, stops the crawl."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress

from ephemeral_crawl.crawl import worker
from ephemeral_crawl.crawl.client import FetchError
from ephemeral_crawl.crawl.feeds import Feed, FeedItem
from ephemeral_crawl.crawl.worker import MEMORY, OUT_OF_MEMORY, framed

_SECONDS = 20.0  # to parse a feed


class LimitedProcess:
    """Parses in another process, of limited time and memory, which ends with this one.

    Arguments:
        worth: as for `parse_feed`.
        seconds: for a document.
    """

    def __init__(self, worth: str = "", seconds: float = _SECONDS) -> None:
        self._worth, self._seconds = worth, seconds
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def __call__(self, body: bytes, content_type: str, url: str) -> Feed:
        async with self._turn:
            arguments = json.dumps([content_type, url, self._worth]).encode()
            try:
                process = self._process or await self._start()
                async with asyncio.timeout(self._seconds):
                    process.stdin.write(framed(arguments) + framed(body))  # type: ignore[union-attr]
                    answer = json.loads(await _read(process))
            except TimeoutError:
                await self.close()
                text = f"parsing it takes more than {self._seconds:g} s"
                raise FetchError("content", text) from None
            except (asyncio.IncompleteReadError, ConnectionError):  # it has ended
                code = await self._exit_code(process)
                raise FetchError("content", _why_ended(code)) from None
            except OSError as error:  # there is no memory for it, or there are too many processes
                text = f"the process that parses cannot be started: {error.strerror or error}"
                raise FetchError("connection", text) from None
            except asyncio.CancelledError:  # the next answer would be that to this document
                await self.close()
                raise
        if isinstance(answer, str):
            raise ValueError(answer)
        if isinstance(answer, dict):
            raise FetchError(**answer)
        title, items, *rest = answer
        return Feed(title, [FeedItem(*item) for item in items], *rest)

    async def _start(self) -> asyncio.subprocess.Process:
        """Return a process that runs `worker.work`, once it is ready.

        It has a session of its own, so that Ctrl-C is left to this process.
        """
        path = os.pathsep.join(name or os.getcwd() for name in sys.path)
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-c", f"from {worker.__name__} import work; work()"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        try:
            await _read(process)
        except asyncio.IncompleteReadError:
            raise RuntimeError("the process that parses feeds ended when it was started") from None
        return process

    async def _exit_code(self, process: asyncio.subprocess.Process) -> int | None:
        """Return how a process that sends nothing has ended; None if it still runs."""
        code = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                code = await process.wait()
        await self.close()
        return code

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            process.stdin.close()  # type: ignore[union-attr]
            await process.communicate()


def _why_ended(code: int | None) -> str:
    """Return why the process that parses has ended, by its exit code; a signal's is negative."""
    if code == OUT_OF_MEMORY:
        return f"parsing it takes more than {MEMORY >> 30} GiB of memory"
    if code == -9:  # SIGKILL, which Windows does not have
        return "the process that parsed it was killed, probably as this machine ran out of memory"
    if code is not None and code < 0:
        with suppress(ValueError):
            return (
                f"the process that parsed it was ended by the signal {signal.Signals(-code).name}"
            )
    return f"the process that parsed it ended unexpectedly, with the exit code {code}"


async def _read(process: asyncio.subprocess.Process) -> bytes:
    size = await process.stdout.readexactly(8)  # type: ignore[union-attr]
    return await process.stdout.readexactly(int.from_bytes(size, "big"))  # type: ignore[union-attr]
