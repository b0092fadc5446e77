"""The path of a request through the code, from the application to the answer, is a short one."""

import asyncio
import json
import sys
import threading

from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.serve.routes import make_app
from ephemeral_crawl.serve.service import Service
from tests.trace import Trace

MOST_FILES = 10
MOST_CHANGES = 65  # of file, from one call to the next


async def post(app, path, body):
    asked, told = [{"type": "http.request", "body": json.dumps(body).encode()}], []

    async def receive():
        return asked.pop()

    async def send(message):
        told.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }
    await app(scope, receive, send)
    assert told[0]["status"] == 200
    return json.loads(told[1]["body"])


def test_a_lease_and_a_report_are_seen_through_in_ten_files(tmp_path):
    """Of a scheduler in use, in a file; once in a while it fits what its sources share, too."""
    now, trace, paths = [1.7e9], Trace(), {"/v1/lease": [], "/v1/report": []}
    scheduler = Scheduler(tmp_path / "crawl.db", budget="1000/h", clock=lambda: now[0])
    scheduler.add_many({"source": str(i), "host": str(i)} for i in range(100))
    scheduler.record({"source": str(i), "items": [(None, 1.0)]} for i in range(100))

    async def main():
        app = make_app(service)

        async def traced(path, **body):
            trace.files, trace.on = [], True
            try:
                return await post(app, path, body)
            finally:
                trace.on = False
                paths[path].append((len({*trace.files}), trace.changes, {*trace.files}))

        for _ in range(12):
            now[0] += 600.0
            (lease,) = (await traced("/v1/lease", timeout="2min", wait="1s"))["leases"]
            items = [[now[0] - 100.0, 1.0]]
            await traced("/v1/report", lease=lease["id"], items=items, status=200)
        service.close()

    trace.on = False
    threading.setprofile(trace)  # for the thread of the service
    service = Service(scheduler)
    threading.setprofile(None)
    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        asyncio.run(main())
    finally:
        sys.setprofile(before)
    for path, calls in paths.items():
        files, changes, which = min(calls, key=lambda call: call[:2])
        assert "ephemeral_crawl/live/journal/sqlite.py" in which, path
        assert files <= MOST_FILES, (path, which)
        assert changes <= MOST_CHANGES, path
