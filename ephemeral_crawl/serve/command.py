"""`ephemeral-crawl serve`: the live scheduler over HTTP."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from ephemeral_crawl.core.base import Command
from ephemeral_crawl.core.logs import Form, Level


@dataclass(kw_only=True)
class Serve(Command):
    """Serves the live scheduler over HTTP: leases and reports for crawlers in any language, a page
    that shows the fleet, and metrics.

    It listens on this machine only, unless there is a token, which is read from a file (made if it
    does not exist) or from the variable EPHEMERAL_CRAWL_TOKEN. Several servers and other programs
    can use one store at the same time.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("store", "budget", "half_life", "worth_at", "host", "port", "token_file", "full"),
        *("log_level", "log_format"),
    )
    store: Annotated[str, tyro.conf.arg(metavar="STORE")] = "sqlite:///crawl.db"
    """The scheduler's file, made if it does not exist: crawl.db or sqlite:///crawl.db; :memory:; or
    a database, postgresql://user@host/database."""
    budget: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """What may be fetched, such as 20/h. A new file needs it; in another it replaces the budget."""
    burst: float | None = None
    """Budget units that can be spent at once; by default those of an hour."""
    half_life: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """Time in which the worth of an item halves, such as 3h, which is the default; or learn."""
    worth_at: str | None = None
    """What reported worths refer to: publication, the default, or fetch."""
    explore: float | None = None
    """Fraction of the budget for visits in rotation; by default .05."""
    full: bool = False
    """Let changes survive a power failure, too."""
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1"
    """Address to listen on. Any but that of this machine itself needs a token."""
    port: int = 8500
    """Port to listen on; 0 for a free one."""
    token_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File of the token that clients must send; one is made, with mode 600, if there is none."""
    rate: Annotated[float, tyro.conf.arg(metavar="R")] = 2000.0
    """Requests per second that one address may make on average without the token; those who send
    it, or all where there is none, are not limited."""
    log_level: Level = "warning"
    """What is logged on standard error: errors alone, warnings too, and so on."""
    log_format: Form = "text"
    """Log lines of text, or one JSON object a line."""

    def run(self) -> None:
        from crawl_env.errors import check_positive
        from ephemeral_crawl.live import Scheduler
        from ephemeral_crawl.serve.access import VARIABLE, find_token, is_loopback
        from ephemeral_crawl.serve.admission import Limits
        from ephemeral_crawl.serve.app import make_app
        from ephemeral_crawl.serve.server import listen, logs, make_server
        from ephemeral_crawl.serve.service import Service

        token = find_token(self.token_file)
        if token is None and not is_loopback(self.host):
            raise ValueError(
                f"--host {self.host} can be reached from other machines, and there is no token; "
                f"give --token-file FILE, which is made if it does not exist, or set {VARIABLE}"
            )
        limits = Limits(rate=check_positive("--rate", self.rate, "requests per second"))
        listener = listen(self.host, self.port)
        scheduler = Scheduler(
            self.store if ":" in self.store else Path(self.store),
            budget=self.budget,
            burst=self.burst,
            half_life=self.half_life,
            worth_at=self.worth_at,
            explore=self.explore,
            full=self.full,
        )
        service = Service(scheduler)
        address, port = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"Serving http://{shown}:{port}/ ({len(scheduler):,} sources)", flush=True)
        server = make_server(make_app(service, token, limits), service, limits)
        gc.collect()
        gc.freeze()  # what is loaded stays, and looking through it for garbage takes .1 s and more
        with logs(self.log_level, self.log_format):
            server.run([listener])
