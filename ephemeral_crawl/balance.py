"""`ephemeral-crawl balance`: divides a budget among servers of shards, and forwards requests."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ephemeral_crawl.core.logs import Form, Level
from ephemeral_crawl.core.program import Command

if TYPE_CHECKING:
    from ephemeral_crawl.serve.admission import Token
    from ephemeral_crawl.serve.servers import Servers
    from ephemeral_crawl.shards.balancer import Balancer


@dataclass(kw_only=True)
class Balance(Command):
    """Divides a budget among the servers of shards so that their prices agree and, with --port,
    forwards requests to the shard that owns the source.

    Each server is an `ephemeral-crawl serve` with a store of its own. All servers use the same
    token, or none, and so does this command. A server that does not answer keeps its budget; the
    budgets never add up to more than the whole.
    """

    servers: Annotated[tuple[str, ...], tyro.conf.arg(metavar="URL")]
    """Addresses of the servers, such as http://127.0.0.1:8501. Their order determines which source
    belongs to which shard: keep it, and append new servers after `ephemeral-crawl reshard`."""
    budget: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """What all servers may fetch together, such as 2000/h, or by the hour, such as "08:00 40/h,
    22:00 10/h". Without it, requests are only forwarded, while another process balances."""
    zone: Annotated[str | None, tyro.conf.arg(metavar="ZONE")] = None
    """Time zone of a budget by the hour, such as Europe/Paris; by default UTC."""
    every: Annotated[str, tyro.conf.arg(metavar="TIME")] = "15min"
    """Time between two rounds."""
    once: bool = False
    """Make one round and end, for use with cron."""
    least: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """Smallest budget of each server."""
    most: Annotated[str | None, tyro.conf.arg(metavar="RATE")] = None
    """Largest budget of each server."""
    token_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File with the token of the servers; or set EPHEMERAL_CRAWL_TOKEN."""
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1"
    """Address to listen on. Any address other than that of this machine itself needs a token."""
    port: int | None = None
    """Port at which requests are forwarded; 0 for a free one. By default, none are forwarded."""
    log_level: Level = "warning"
    """What is logged on standard error."""
    log_format: Form = "text"
    """Log lines of text, or one JSON object per line."""

    def run(self) -> None:
        from ephemeral_crawl.live.arguments import per_second, seconds
        from ephemeral_crawl.serve.admission import VARIABLE, Token, is_loopback
        from ephemeral_crawl.serve.server import logs
        from ephemeral_crawl.serve.servers import Servers
        from ephemeral_crawl.shards.balancer import Balancer

        def hourly(name: str, rate: str) -> float:
            return 3600.0 * per_second(name, rate)

        token = os.environ.pop(VARIABLE, None)
        if self.token_file is not None:
            token = self.token_file.read_text(encoding="utf-8", errors="replace").strip()
        secret = None if token is None else Token(token)
        if self.port is not None and secret is None and not is_loopback(self.host):
            raise ValueError(
                f"--host {self.host} can be reached from other machines, and there is no token; "
                f"give --token-file FILE, or set {VARIABLE}"
            )
        balancer = None
        if self.budget is not None:
            balancer = Balancer.of(
                self.budget,
                self.zone,
                time.time(),
                len(self.servers),
                hourly("--least", self.least) if self.least else 0.0,
                hourly("--most", self.most) if self.most else None,
            )
        elif self.port is None or self.once:
            raise ValueError("give --budget, what all servers may fetch together, such as 2000/h")
        interval = seconds("--every", self.every, 1.0)
        servers = Servers(self.servers, token)
        with logs(self.log_level, self.log_format):
            asyncio.run(self._run(servers, balancer, interval, secret))

    async def _run(
        self, servers: Servers, balancer: Balancer | None, interval: float, token: Token | None
    ) -> None:
        from ephemeral_crawl.serve.admission import Limits
        from ephemeral_crawl.serve.server import forward, keep_balanced, listen

        async with servers:
            if self.port is not None and not self.once:
                listener = listen(self.host, self.port)
                await forward(servers, balancer, interval, token, Limits(), listener)
            elif balancer is not None:
                await keep_balanced(servers, balancer, interval, self.once)
