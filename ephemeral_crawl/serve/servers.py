"""The servers of shards: requests to them, and rounds of the balancer."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from crawl_env.errors import shown
from ephemeral_crawl.live import Counts, Status, TagStatus
from ephemeral_crawl.live.reasons import redacted
from ephemeral_crawl.serve.errors import Refusal
from ephemeral_crawl.shards.balancer import Balancer, Quote, quote_of
from ephemeral_crawl.shards.tag_budgets import Bounds, TagBudgets, TagQuote, is_rate

_LOG = logging.getLogger(__name__)
_PATIENCE = 30.0  # seconds for an answer
_IDLE = 5.0  # seconds after which a connection is not used again: before the server closes it
_MOST = 1 << 26  # bytes of an answer
NO_HEADERS: Mapping[str, str] = {}


class Shards(ABC):
    """The servers of shards, in the order of the shards.

    Attributes:
        addresses: how messages name each of them, (S,).
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.tags: dict[str, TagBudgets] = {}  # those whose budgets are divided
        self._round = asyncio.Lock()  # one at a time

    def __len__(self) -> int:
        return len(self.addresses)

    @abstractmethod
    async def exchange(
        self,
        shard: int,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[int, bytes]:
        """Send a request; return the status and the body of the answer.

        Arguments:
            headers: more of them, beside those of a request that sends JSON.

        Raises:
            OSError, EOFError, ValueError, LookupError, asyncio.LimitOverrunError: no answer.
        """

    async def ask(self, shard: int, method: str, path: str, body: object = None) -> Any:
        """Return the answer of a server: parsed from JSON below /v1/, otherwise its text.

        Arguments:
            body: what is sent as JSON; None: nothing.

        Raises:
            Refusal: it refuses, or does not answer.
        """
        text = b"" if body is None else json.dumps(body).encode()
        status, answer = await self.send(shard, method, path, text)
        try:
            if status == 200 and not path.startswith("/v1/"):
                return answer.decode()
            content = json.loads(answer)
            if status == 200:
                return content
            again = {"Retry-After": "1"} if status == 503 else None
            raise Refusal(status, content["error"], content["message"], again)
        except (ValueError, LookupError) as error:
            raise self._silent(shard, error) from error

    async def send(
        self,
        shard: int,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[int, bytes]:
        """Return what `exchange` does.

        Raises:
            Refusal: the server does not answer.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self.exchange(shard, method, path, body, headers)
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError, LookupError) as error:
            raise self._silent(shard, error) from error

    def _silent(self, shard: int, error: Exception) -> Refusal:
        return Refusal(
            503,
            "shard",
            f"the server of shard {shard}, {self.addresses[shard]}, does not answer as it should "
            f"({str(error) or type(error).__name__}); the other shards go on, see its log",
            {"Retry-After": "1"},
        )

    async def post(self, shard: int, method: str, arguments: Mapping[str, Any]) -> Any:
        """Call a method of a shard that changes something, as `ask`."""
        return await self.ask(shard, "POST", f"/v1/{method}", arguments)

    async def statuses(self) -> list[Status | None]:
        """Return the status of each, (S,); None of those that do not answer."""
        requests = [self.ask(k, "GET", "/v1/status") for k in range(len(self))]
        return [
            _status(answer) for answer in await asyncio.gather(*requests, return_exceptions=True)
        ]

    async def balance(self, balancer: Balancer) -> list[Quote | None]:
        """Run one round of a balancer; return the quotes of the shards before it."""
        async with self._round:
            balancer.follow(time.time())
            statuses = await self.statuses()
            quotes = [None if status is None else quote_of(status) for status in statuses]
            for part in (balancer.lower(quotes), None):
                budgets = balancer.rise() if part is None else part
                arguments = {k: balancer.arguments(x) for k, x in budgets.items()}
                answers = await self._tell("configure", arguments)
                if part is not None:
                    balancer.acknowledge({k: part[k] for k in answers})
            await self._balance_tags(statuses)
            return quotes

    async def limit_tag(self, tag: str, bounds: Bounds) -> None:
        """Divide the minimum and the maximum of a tag among the shards, from now on.

        Raises:
            Refusal: a shard does not answer. If that is so at the beginning, nothing is changed.
        """
        async with self._round:
            statuses = await self.statuses()
            silent = [self.addresses[k] for k, status in enumerate(statuses) if status is None]
            if silent:
                raise Refusal(
                    503,
                    "shard",
                    f"these servers do not answer: {', '.join(silent)}. What they would spend "
                    "beside the new budget of the tag is not known: nothing was changed",
                    {"Retry-After": "1"},
                )
            if tag not in self.tags:
                self.tags[tag] = TagBudgets(tag, len(self))
            self.tags[tag].bounds = bounds
            if late := await self._balance_tags(statuses, only=tag):
                places = ", ".join(self.addresses[k] for k in late)
                raise Refusal(
                    503,
                    "shard",
                    f"these servers have not confirmed it: {places}. The others have, and these "
                    "are told again in the next round",
                    {"Retry-After": "1"},
                )

    async def _balance_tags(
        self, statuses: Sequence[Status | None], only: str | None = None
    ) -> list[int]:
        """Run one round of the budgets of all tags, or of one; return the shards that did not
        confirm theirs."""
        tags = await self.each_tags(statuses)
        if only is None:
            self._find_tags(tags)
        late = set[int]()
        for name, budgets in self.tags.items():
            if only not in (None, name):
                continue
            quotes = [_quote_of_tag(name, *pair) for pair in zip(statuses, tags, strict=True)]
            for part in ("lower", "rise"):
                arguments = budgets.lower(quotes) if part == "lower" else budgets.rise()
                answers = await self._tell("limit_tag", arguments)
                late |= arguments.keys() - answers.keys()
                if part == "lower":
                    budgets.acknowledge(answers)
        return sorted(late)

    async def each_tags(
        self, statuses: Sequence[Status | None] | None = None
    ) -> list[list[TagStatus] | None]:
        """Return the tags of each shard, (S,); None of those that do not answer."""
        shards = [k for k in range(len(self)) if statuses is None or statuses[k] is not None]
        requests = [self.ask(k, "GET", "/v1/tags") for k in shards]
        answers = dict(
            zip(shards, await asyncio.gather(*requests, return_exceptions=True), strict=True)
        )
        return [
            [TagStatus(**tag) for tag in tags] if isinstance(tags := answers.get(k), list) else None
            for k in range(len(self))
        ]

    def _find_tags(self, tags_of_shards: Sequence[list[TagStatus] | None]) -> None:
        """From now on, also divide the bounds of tags that others have set on the shards."""
        bounds_of: dict[str, set[Bounds]] = {}
        for tag in (tag for tags in tags_of_shards for tag in tags or () if tag.tag):
            bounds_of.setdefault(tag.tag, set()).add((tag.least_set, tag.most_set))
        for name, bounds in bounds_of.items():
            rates = [pair for pair in bounds if any(map(is_rate, pair))]
            if name not in self.tags and rates:
                self.tags[name] = TagBudgets(name, len(self))
                self.tags[name].bounds = rates[0]
            elif name in self.tags and len(bounds) == 1:
                self.tags[name].bounds = bounds.pop()

    async def _tell(
        self, method: str, arguments: Mapping[int, Mapping[str, Any]]
    ) -> Mapping[int, Any]:
        """Tell shards something; return the answers of those that have confirmed it."""
        answers = await asyncio.gather(
            *(self.post(k, method, body) for k, body in arguments.items()),
            return_exceptions=True,
        )
        answer_of = dict(zip(arguments, answers, strict=True))
        for error in answer_of.values():
            if isinstance(error, BaseException):
                _LOG.warning("a budget was not confirmed: %s", error)
        return {k: x for k, x in answer_of.items() if not isinstance(x, BaseException)}


def _quote_of_tag(
    name: str, status: Status | None, tags: list[TagStatus] | None
) -> TagQuote | None:
    if status is None or tags is None:
        return None
    new = status.new / max(status.sources, 1)
    unknown = TagStatus(name, 0, False, None, None, 0.0, 0.0, 0.0, 0.0, "")
    tag = next((tag for tag in tags if tag.tag == name), unknown)
    return TagQuote(tag, new * tag.sources)


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    last_use: float  # when it was used last, by a monotonic clock


class Servers(Shards):
    """Servers of shards over HTTP, `ephemeral-crawl serve`, in the order of the shards.

    Connections are kept and used again. It speaks as much of HTTP as these servers do: libraries
    take several times as long, in which the router would wait.

    Arguments:
        addresses: such as "http://127.0.0.1:8501", (S,).
        token: what they ask for; None: nothing.
    """

    def __init__(self, addresses: Sequence[str], token: str | None = None) -> None:
        super().__init__([address.rstrip("/") for address in addresses])
        if not addresses or len({*self.addresses}) < len(addresses):
            raise ValueError("give the addresses of the servers, each once")
        self._places = [_place_of(address) for address in self.addresses]
        self._authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        self._free: list[list[_Connection]] = [[] for _ in addresses]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in (c for connections in self._free for c in connections):
            connection.writer.close()

    async def exchange(
        self,
        shard: int,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[int, bytes]:
        host, port, context, name = self._places[shard]
        free = self._free[shard]
        while free and time.monotonic() - free[-1].last_use > _IDLE:
            for connection in free:  # the others were used before
                connection.writer.close()
            free.clear()
        reader, writer, _ = (
            free.pop()
            if free
            else _Connection(*await asyncio.open_connection(host, port, ssl=context), 0.0)
        )
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: {name}\r\n{self._authorization}"
            head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode("latin-1") + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            fields = dict(line.split(": ", 1) for line in lines[1:] if line)
            size = int(fields["content-length"])
            if not 0 <= size <= _MOST:
                raise ValueError(f"its answer has {size} bytes")
            answer = await reader.readexactly(size)
        except BaseException:
            writer.close()
            raise
        if fields.get("connection") == "close":
            writer.close()
        else:
            free.append(_Connection(reader, writer, time.monotonic()))
        return int(lines[0].split(" ")[1]), answer


def _status(answer: Any) -> Status | None:
    if isinstance(answer, BaseException):
        _LOG.warning("%s", answer)
        return None
    return Status(**{**answer, "counts": Counts.from_dict(answer["counts"])})


def _place_of(address: str) -> tuple[str, int, ssl.SSLContext | None, str]:
    """Return host and port of a server, how to encrypt, and its name in requests."""
    try:
        parts = urlsplit(address)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        if not parts.hostname or parts.path or parts.query or "@" in parts.netloc:
            raise ValueError
    except (ValueError, LookupError):
        raise ValueError(
            f"server is {redacted(shown(address))}; give an address such as http://127.0.0.1:8501"
        ) from None
    context = ssl.create_default_context() if parts.scheme == "https" else None
    return parts.hostname, port, context, parts.netloc
