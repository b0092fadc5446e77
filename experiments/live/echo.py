"""`python -m experiments.live.echo N`: a server that parses the requests of the benchmark, and
answers each with a constant of the usual size: the least that this costs with Starlette.
"""

from __future__ import annotations

import json
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ephemeral_crawl.serve.server import listen

_LEASE = {
    "source": "https://e123456.example/feed",
    "value": 1.2345678901234567,
    "index": 1.2345678901234567,
    "price": 0.0012345678901234567,
    "reason": "its index has reached the price",
    "expires": 1795397262.3123456,
}


def main(batch: int) -> None:
    """Serve on a free port, which is printed, until the process is ended."""
    answers = {
        "/v1/lease": {"leases": [{"id": k, **_LEASE} for k in range(1, batch + 1)]},
        "/v1/record": {"results": [True] * batch},
        "/healthz": None,
    }
    texts = {path: json.dumps(answer).encode() for path, answer in answers.items()}

    async def echo(request: Request) -> Response:
        if request.method == "POST":
            json.loads(await request.body())
        return Response(texts[request.url.path], media_type="application/json")

    listener = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    app = Starlette(routes=[Route(path, echo, methods=["GET", "POST"]) for path in texts])
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run([listener])


if __name__ == "__main__":
    main(int(sys.argv[1]))
