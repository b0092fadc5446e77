"""Rounds of the balancer one after the other, and the server that forwards to shards meanwhile."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import Sequence
from typing import Any

from crawl_env.errors import counted
from ephemeral_crawl.serve.admission import Limits, Token
from ephemeral_crawl.serve.router import Router, make_router
from ephemeral_crawl.serve.server import announce, make_server
from ephemeral_crawl.serve.servers import Shards
from ephemeral_crawl.shards.balancer import Balancer, Quote

_LOG = logging.getLogger(__name__)


async def keep_balanced(shards: Shards, balancer: Balancer, every: float, once: bool) -> None:
    """Balance once, or again and again; print the quotes of the shards and their new budgets.

    Arguments:
        every: seconds between two rounds.
    """
    while True:
        try:
            quotes = await shards.balance(balancer)
            _print(shards.addresses, quotes, balancer)
        except Exception:  # the next round is another
            if once:
                raise
            _LOG.exception("a round failed")
        if once:
            if None in quotes:
                raise ValueError("no budget was changed, since a server does not answer")
            return
        await asyncio.sleep(every)


async def forward(
    shards: Shards,
    balancer: Balancer | None,
    every: float,
    token: Token | None,
    limits: Limits,
    listener: socket.socket,
) -> None:
    """Forward requests to shards until SIGTERM or SIGINT, and balance meanwhile."""

    async def set_budget(budget: object, zone: object, burst: Any) -> None:
        if balancer is None:
            raise ValueError("this server does not balance; ask the one that was given --budget")
        balancer.set_budget(budget, zone, time.time(), burst)
        await shards.balance(balancer)

    router = Router(shards, balances=balancer is not None)
    app = make_router(router, token, limits, set_budget)
    announce(listener, counted(len(shards), "shard"))
    rounds = balancer and asyncio.create_task(keep_balanced(shards, balancer, every, once=False))
    await make_server(app, router, limits).serve([listener])
    if rounds:
        rounds.cancel()


def _print(addresses: Sequence[str], quotes: Sequence[Quote | None], balancer: Balancer) -> None:
    """Print the quotes of the shards and their new budgets."""
    for address, quote, given in zip(addresses, quotes, balancer.given.tolist(), strict=True):
        if quote is None:
            kept = f"{given:.4g}/h" if given < math.inf else "what it has"
            print(f"{address}  does not answer, keeps {kept}", flush=True)
        else:
            print(
                f"{address}  price {quote.price:.4g}  {quote.budget:.4g} -> {given:.4g}/h",
                flush=True,
            )
