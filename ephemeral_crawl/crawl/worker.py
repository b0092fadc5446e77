"""The process that parses feeds: it reads documents, and writes what they hold.

It imports only what it needs for that. Of some packages that is a small module or two, while the
package imports all that it offers, which would take about a second whenever the process starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec, module_from_spec
from queue import SimpleQueue
from typing import Any

MEMORY = 2 << 30  # bytes, of the process
OUT_OF_MEMORY = 3  # exit code
_PACKAGES = ("crawl_env", "ephemeral_crawl.live")  # of which only modules are imported


def framed(data: bytes) -> bytes:
    """Return data after its length."""
    return len(data).to_bytes(8, "big") + data


def work() -> None:
    """Parse the documents that arrive on standard input until it is closed, which happens when the
    process that started this one ends, even if it was killed."""
    for name in _PACKAGES:
        if (spec := find_spec(name)) is not None:
            sys.modules[name] = module_from_spec(spec)  # which is not executed
    import feedparser  # noqa: F401  # which takes a while

    from ephemeral_crawl.crawl.documents import CutOff
    from ephemeral_crawl.crawl.feeds import parse_feed

    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is under way is to end in order
    documents: SimpleQueue[tuple[bytes, bytes]] = SimpleQueue()
    threading.Thread(target=_receive, args=(documents,), daemon=True).start()
    answer: Any = None
    while True:
        sys.stdout.buffer.write(framed(json.dumps(answer).encode()))
        sys.stdout.buffer.flush()
        arguments, body = documents.get()
        try:
            answer = parse_feed(body, *json.loads(arguments))
        except RecursionError:
            answer = "it is nested too deeply"
        except CutOff as error:
            answer = {"kind": "incomplete", "reason": str(error)}
        except ValueError as error:
            answer = str(error)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)


def _receive(documents: SimpleQueue[tuple[bytes, bytes]]) -> None:
    def part() -> bytes:
        return sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "big"))

    while arguments := part():
        documents.put((arguments, part()))
    os._exit(0)
