"""The servers of shards, over HTTP: what is asked of them, and rounds of the balancer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Self

import httpx

from ephemeral_crawl.live import Counts, Status
from ephemeral_crawl.serve.errors import Refused
from ephemeral_crawl.shards.balancer import Balancer, Quote, quote_of, rate_of

_LOG = logging.getLogger(__name__)
_PATIENCE = 30.0  # seconds for an answer


class Servers:
    """Servers of shards, `ephemeral-crawl serve`, in the order of the shards.

    Arguments:
        addresses: such as "http://127.0.0.1:8501", (S,).
        token: what they ask for; None: nothing.
    """

    def __init__(self, addresses: Sequence[str], token: str | None = None) -> None:
        self.addresses = [address.rstrip("/") for address in addresses]
        if not addresses or len({*self.addresses}) < len(addresses):
            raise ValueError("give the addresses of the servers, each once")
        for address in self.addresses:
            if not address.startswith(("http://", "https://")):
                raise ValueError(
                    f"server is {address!r}; give an address like http://127.0.0.1:8501"
                )
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_PATIENCE,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=200),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    def __len__(self) -> int:
        return len(self.addresses)

    async def ask(self, shard: int, method: str, path: str, **request: Any) -> Any:
        """Return what a server answers, from JSON.

        Arguments:
            request: `params` of the query, or `json`, the body, as for httpx.

        Raises:
            Refused: it refuses, or does not answer.
        """
        address = self.addresses[shard]
        try:
            answer = await self._client.request(method, address + path, **request)
            told = answer.json()
            if answer.status_code == 200:
                return told
            again = {k: v for k, v in answer.headers.items() if k.lower() == "retry-after"}
            raise Refused(answer.status_code, told["error"], told["message"], again)
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise Refused(
                503,
                "shard",
                f"the server of shard {shard}, {address}, does not answer as it should "
                f"({type(error).__name__}); the other shards go on, see its log",
                {"Retry-After": "1"},
            ) from error

    async def post(self, shard: int, method: str, arguments: Mapping[str, Any]) -> Any:
        """Call a method of a shard that changes something, as `ask`."""
        return await self.ask(shard, "POST", f"/v1/{method}", json=arguments)

    async def statuses(self) -> list[Status | None]:
        """Return the status of each, (S,); None of those that do not answer."""
        asked = [self.ask(k, "GET", "/v1/status") for k in range(len(self))]
        return [_status(told) for told in await asyncio.gather(*asked, return_exceptions=True)]

    async def balance(self, balancer: Balancer) -> list[Quote | None]:
        """Make a round of a balancer; return what the shards said before."""
        quotes = [None if status is None else quote_of(status) for status in await self.statuses()]
        balancer.acknowledge(await self._tell(balancer.lower(quotes)))
        await self._tell(balancer.rise())
        return quotes

    async def _tell(self, budgets: Mapping[int, float]) -> dict[int, float]:
        """Tell shards their budgets; return those that were confirmed."""
        told = await asyncio.gather(
            *(self.post(k, "configure", {"budget": rate_of(x)}) for k, x in budgets.items()),
            return_exceptions=True,
        )
        for error in told:
            if isinstance(error, BaseException):
                _LOG.warning("a budget was not confirmed: %s", error)
        return {
            k: x
            for (k, x), answer in zip(budgets.items(), told, strict=True)
            if not isinstance(answer, BaseException)
        }


def _status(told: Any) -> Status | None:
    if isinstance(told, BaseException):
        _LOG.warning("%s", told)
        return None
    return Status(**{**told, "counts": Counts.from_dict(told["counts"])})
