"""`ephemeral-crawl serve`: the live scheduler over HTTP."""

from __future__ import annotations

import gc
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from ephemeral_crawl.core.logs import Form, Level
from ephemeral_crawl.core.program import Command

if TYPE_CHECKING:
    from ephemeral_crawl.serve.admission import Limits, Token
    from ephemeral_crawl.serve.receiver import Receiver
    from ephemeral_crawl.serve.service import Service

_EVERY = 900.0  # seconds between two rounds of the balancer, with shards


@dataclass(kw_only=True)
class Serve(Command):
    """Serves the live scheduler over HTTP: leases and reports for crawlers in any language, a page
    that shows the fleet, and metrics.

    It listens on this machine only, unless there is a token. The token is read from a file (created
    if it does not exist) or from the environment variable EPHEMERAL_CRAWL_TOKEN. Several servers
    and other programs can use one store at the same time.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("store", "budget", "half_life", "worth_at", "host", "port", "token_file", "full"),
        *("log_level", "log_format"),
    )
    store: Annotated[str, tyro.conf.arg(metavar="STORE")] = "sqlite:///crawl.db"
    """The scheduler's store, created if it does not exist: a file, crawl.db or sqlite:///crawl.db;
    :memory:; or a database, postgresql://user@host/database."""
    budget: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """What may be fetched, such as 20/h, or by the hour, such as "08:00 40/h, 22:00 10/h". A new
    store needs it; in an existing store, it replaces the budget."""
    zone: Annotated[str | None, tyro.conf.arg(metavar="ZONE")] = None
    """Time zone of a budget by the hour, such as Europe/Paris; by default UTC."""
    burst: float | None = None
    """Budget units that can be spent at once; by default, the budget of an hour."""
    half_life: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """Time in which the worth of an item halves, such as 3h, the default; or learn, to estimate
    it."""
    worth_at: str | None = None
    """Time to which reported worths refer: publication, the default, or fetch."""
    explore: float | None = None
    """Fraction of the budget for exploratory fetches; by default .05."""
    full: bool = False
    """Let changes survive a power failure, too."""
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1"
    """Address to listen on. Any address other than that of this machine itself needs a token."""
    port: int = 8500
    """Port to listen on; 0 for a free one."""
    token_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File with the token that clients must send; created with mode 600 if it does not exist."""
    public_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Address at which others reach this server, such as https://crawl.example.org. The server then
    subscribes to the WebSub hubs that feeds name, and accepts IndexNow. This needs the extra crawl,
    a token, and a separate request to each feed, repeated once a week until the feed names a
    hub."""
    allow_private: bool = False
    """Also contact feeds, hubs and key files at addresses that are not public."""
    shards: int | None = None
    """Divide the sources among this many schedulers, which run on Ray, each with a store of its
    own: STORE with {shard} in place of the number. The budget is that of all shards; without it,
    this server forwards to shards that another one has started."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """With --shards: auto, for the Ray cluster to which this machine belongs, or HOST:PORT; by
    default that of RAY_ADDRESS, or a Ray on this machine alone."""
    rate: Annotated[float, tyro.conf.arg(metavar="R")] = 2000.0
    """Requests per second that one address may make on average without the token. Clients that send
    it are not limited, nor is anyone where there is no token."""
    log_level: Level = "warning"
    """Least severe level that is logged on standard error."""
    log_format: Form = "text"
    """Log lines of text, or one JSON object per line."""

    def run(self) -> None:
        from crawl_env.errors import check_positive
        from ephemeral_crawl.serve.admission import VARIABLE, Limits, find_token, is_loopback
        from ephemeral_crawl.serve.server import listen

        limits = Limits(rate=check_positive("--rate", self.rate, "requests per second"))
        if self.public_url is not None:
            from ephemeral_crawl.crawl.urls import check_url

            check_url(self.public_url, "--public-url")
        with listen(self.host, self.port) as listener:  # before a token or a store is made
            token = find_token(self.token_file)
            if token is None and not is_loopback(self.host):
                raise ValueError(
                    f"--host {self.host} can be reached from other machines, and there is no "
                    f"token; give --token-file FILE, which is made if it does not exist, or set "
                    f"{VARIABLE}"
                )
            if self.public_url is not None and token is None:
                raise ValueError("--public-url needs a token, as by --token-file")
            if self.shards is None:
                self._alone(token, limits, listener)
            else:
                self._on_ray(self.shards, token, limits, listener)

    def _alone(self, token: Token | None, limits: Limits, listener: socket.socket) -> None:
        """Serve one scheduler until SIGTERM or SIGINT."""
        from crawl_env.errors import counted
        from ephemeral_crawl.live import Scheduler
        from ephemeral_crawl.live.journal import store_named
        from ephemeral_crawl.serve.routes import make_app
        from ephemeral_crawl.serve.server import announce, logs, make_server
        from ephemeral_crawl.serve.service import Service

        scheduler = Scheduler(
            store_named(self.store),
            budget=self.budget,
            zone=self.zone,
            burst=self.burst,
            half_life=self.half_life,
            worth_at=self.worth_at,
            explore=self.explore,
            full=self.full,
        )
        service = Service(scheduler)
        receiver = self._receiver(service) if self.public_url is not None else None
        announce(listener, counted(len(scheduler), "source"))
        server = make_server(make_app(service, token, limits, receiver), service, limits)
        gc.collect()
        gc.freeze()  # what is loaded stays, and looking through it for garbage takes .1 s and more
        with logs(self.log_level, self.log_format):
            server.run([listener])

    def _receiver(self, service: Service) -> Receiver:
        """Return what receives from hubs and sites."""
        from ephemeral_crawl.live.journal import store_named
        from ephemeral_crawl.serve.receiver import Receiver, subscriptions_of

        path = subscriptions_of(store_named(self.store))
        return Receiver(service, path, self.public_url or "", allow_private=self.allow_private)

    def _on_ray(
        self, number: int, token: Token | None, limits: Limits, listener: socket.socket
    ) -> None:
        """Start shards, or join them, and forward requests to them."""
        import asyncio
        import time

        from crawl_env.errors import check_whole
        from ephemeral_crawl.serve.actors import Actors
        from ephemeral_crawl.serve.server import forward, logs
        from ephemeral_crawl.shards.balancer import Balancer

        balancer = None
        if self.budget is not None:
            number = check_whole("--shards", number)
            balancer = Balancer.of(self.budget, self.zone, time.time(), number, burst=self.burst)
        elif self.burst is not None:
            raise ValueError("--burst is divided among shards with --budget; give both")
        settings = {
            name: value
            for name in ("half_life", "worth_at", "explore")
            if (value := getattr(self, name)) is not None
        }
        if self.public_url is not None and balancer is None:
            raise ValueError(
                "--public-url is for the server that starts the shards, with --budget; others pass "
                "on what hubs and sites send without it"
            )
        actors = Actors(
            self.store,
            number,
            self.ray,
            full=self.full,
            join=balancer is None,
            public=self.public_url,
            allow_private=self.allow_private,
        )

        async def run() -> None:
            async with actors:
                for k in range(number) if settings else ():
                    await actors.post(k, "configure", settings)
                await forward(actors, balancer, _EVERY, token, limits, listener)

        with logs(self.log_level, self.log_format):
            asyncio.run(run())
