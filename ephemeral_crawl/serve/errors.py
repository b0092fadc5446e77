"""Errors as the clients see them: a status code, a word for programs and a sentence for people."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from crawl_env.errors import shown
from ephemeral_crawl.live import SourceExists, UnknownLease, UnknownSource
from ephemeral_crawl.live.errors import DamagedStore
from ephemeral_crawl.live.reasons import redacted
from ephemeral_crawl.serve.service import Busy

_LOG = logging.getLogger(__name__)


class Problem(BaseModel):
    """The content of every answer other than 2xx."""

    error: str = Field(examples=["unknown_source"], description="A word for programs.")
    message: str = Field(
        examples=["there is no source 'https://example.org/feed'; check its name, or `add` it"],
        description="What happened, why, and what to do.",
    )


class Refusal(HTTPException):
    """An error that is answered to the client."""

    def __init__(
        self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.error, self.message = error, message

    def __str__(self) -> str:
        return self.message

    def response(self) -> Response:
        """Return it as an answer."""
        return JSONResponse(
            {"error": self.error, "message": redacted(self.message)},
            self.status_code,
            {**(self.headers or {}), "Cache-Control": "no-store"},
        )


# Status codes that a route can answer with, for its documentation.
MEANINGS = {
    400: "The body is not JSON, or not UTF-8.",
    401: "The token is missing or wrong.",
    403: "The request came under the name of another host.",
    404: "There is no such source or lease.",
    408: "The request did not arrive in time.",
    409: "There is a source of this name.",
    410: "The lease was reported before, or its source was removed; or, for `release`, it had "
    "expired. Nothing is recorded.",
    413: "The body is too large.",
    415: "The body is not of type application/json.",
    422: "An argument is invalid. Nothing is recorded.",
    429: "Too many requests; `Retry-After` says when to come again.",
    503: "The server is busy or stops; `Retry-After` says when to come again.",
}
ALWAYS = (401, 403, 429, 503)
WITH_BODY = (400, 408, 413, 415, 422)
_PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of answers that are errors.

    FastAPI makes a validator for each that names a model, which takes most of the time to make an
    application: those of code 422 do, and the others refer to it.
    """
    return {
        code: {
            "description": MEANINGS[code],
            **({"model": Problem} if code == 422 else {"content": _PROBLEM}),
        }
        for code in sorted({*ALWAYS, *codes})
    }


def refusal_of(error: Exception) -> Refusal:
    """Return the answer to an error."""
    again = {"Retry-After": "1"}
    match error:
        case Refusal():
            return error
        case UnknownSource():
            return Refusal(404, "unknown_source", str(error))
        case UnknownLease():
            return Refusal(404, "unknown_lease", str(error))
        case SourceExists():
            return Refusal(409, "source_exists", str(error))
        case RequestValidationError() | ValidationError():
            return Refusal(422, "invalid", _sentence(error))
        case HTTPException(status_code=404):
            return Refusal(404, "no_route", "there is no such page; see /openapi.json")
        case HTTPException(status_code=405):
            message = "this path has other methods; see /openapi.json"
            return Refusal(405, "method", message, error.headers)
        case HTTPException():
            return Refusal(error.status_code, "invalid", "the request cannot be understood")
        case DamagedStore():
            return Refusal(503, "store", str(error), again)
        case ValueError() | TypeError():
            return Refusal(422, "invalid", str(error))
        case Busy():
            message = "the server has more requests than it gets done; try again"
            return Refusal(503, "busy", message, again)
        case TimeoutError():
            return Refusal(503, "locked", "the store is in use by others; try again", again)
        case sqlite3.Error() | OSError():
            return Refusal(503, "store", f"the store cannot be used: {error}", again)
        case _:
            message = "the server failed; its log says why. Nothing may have been recorded"
            return Refusal(500, "failed", message)


def _sentence(error: RequestValidationError | ValidationError) -> str:
    """Return a sentence about the first invalid argument."""
    first = error.errors()[0]
    where = [str(part) for part in first["loc"] if part not in ("body", "query")]
    name = shown(" ".join(where))[1:-1] if where else "the body"
    match first["type"]:
        case "missing":
            return f"{name} is missing"
        case "extra_forbidden":
            return f"there is no argument {name}; see /openapi.json"
        case "dict_type" | "model_type":
            return f"{name} is {shown(first['input'])}; it must be an object, {{…}}"
        case _:
            requirement = str(first["msg"]).removeprefix("Value error, ").removeprefix("Input ")
            return f"{name} is {shown(first.get('input'))}; it {requirement}"


def as_json(value: object) -> str:
    """Return a value in the notation of messages to clients."""
    return repr(value) if isinstance(value, str) else json.dumps(value, default=repr)


def route_of(scope: Scope) -> str:
    """Return the template of the route that answers, or "other"; paths of hooks are secrets."""
    return getattr(scope.get("route"), "path", "other")


def answer_to(error: Exception, route: str) -> Response:
    """Return the answer to an error, and log it if the server failed: in a line if it is known
    why, as where the disk is full, with all requests until there is room."""
    refusal = refusal_of(error)
    if refusal.status_code >= 500 and refusal.error != "busy":
        unknown = error if refusal.error == "failed" else None
        _LOG.error("%s failed: %s", route, redacted(str(refusal)), exc_info=unknown)
    return refusal.response()


def answer_errors(app: FastAPI) -> None:
    """Make an app answer errors with `Problem`."""

    async def answer(request: Request, error: Exception) -> Response:
        return answer_to(error, route_of(request.scope))

    # Exception is answered outside of all, and then raised again: so errors that we know are named.
    kinds = (HTTPException, RequestValidationError, Refusal, ValueError, TypeError, Busy, OSError)
    for kind in (*kinds, sqlite3.Error, Exception):
        app.add_exception_handler(kind, answer)
