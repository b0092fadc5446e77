"""A real browser: Chromium, told what to do over a pair of pipes (Chrome DevTools Protocol)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


class Browser:
    """One page of a browser."""

    def __init__(self, folder: Path) -> None:
        here, its = os.pipe(), os.pipe()

        def connect() -> None:  # it reads from file 3 and writes to file 4
            ends = os.dup(here[0]), os.dup(its[1])
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen(
            [
                *(PROGRAM or "", "--headless", "--no-sandbox", "--disable-gpu", "about:blank"),
                *("--remote-debugging-pipe", f"--user-data-dir={folder}"),
            ],
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(here[0])
        os.close(its[1])
        self._to, self._from = here[1], os.fdopen(its[0], "rb", buffering=0)
        self._number, self._rest, self._session = 0, b"", None
        self.complaints: list[str] = []  # of the page, as in the console
        target = next(
            t for t in self.tell("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )
        attached = self.tell("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.tell(f"{domain}.enable")

    def tell(self, method: str, **parameters: Any) -> Any:
        """Send a command, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(json.dumps(answer["params"]))

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            part = self._from.read(65536)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.tell("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, expression
            time.sleep(0.05)

    def open(self, url: str, width: int = 1300) -> None:
        """Show a page in a window of some width."""
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.value("window.left = true")
        self.tell("Page.navigate", url=url)
        self.until("!window.left && document.readyState == 'complete'")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        os.close(self._to)
        self._from.close()
