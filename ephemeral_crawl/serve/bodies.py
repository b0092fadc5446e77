"""What is sent and answered, as OpenAPI documents it.

The arguments of a route are those of the method of `Scheduler`: names, types and meanings are read
from its signature and docstring. The method checks the values, so that an argument is refused with
the same words in Python and over HTTP.
"""

from __future__ import annotations

import inspect
import re
from datetime import datetime, timedelta
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema, create_model

from ephemeral_crawl.live import Lease, Scheduler

_DURATION = {  # the number first: generated clients read a default as the first type that fits
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["5min", "1.5h"]}],
    "title": "a duration such as '5min' or '24h', or seconds",
}
_TIME = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}],
    "title": "ISO 8601 with a time zone, or seconds since 1970",
}
_ITEM = {
    "type": "array",
    "prefixItems": [{"anyOf": [*_TIME["anyOf"], {"type": "null"}]}, {"type": "number"}],
    "minItems": 2,
    "maxItems": 2,
}
_WHOLE = {"type": "integer", "format": "int64", "minimum": 1}  # ids of leases exceed 32 bits
_TYPES = {bool: "boolean", float: "number", str: "string"}
_LEASE = TypeAdapter(Lease).json_schema()
_LEASE["properties"]["id"] |= _WHOLE
_FETCHED = {
    "lease": "The lease, even if it has expired;",
    "source": "or the name of a source that was fetched without one. An open lease stays open.",
}
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)  # in a docstring
_EXAMPLES: dict[str, dict[str, Any]] = {
    "report": {"lease": 17, "items": [["2026-11-23T10:00:00Z", 1.0], [None, 1]], "status": 200},
    "failed": {"lease": 17, "status": 429, "retry_after": "10min"},
    "release": {"lease": 17, "again_after": "1min"},
    "signal": {"source": "https://example.org/feed", "kind": "websub"},
    "add": {"source": "https://example.org/feed", "host": "example.org", "max_interval": "24h"},
    "update": {"source": "https://example.org/feed", "max_interval": "6h", "paused": False},
    "remove": {"source": "https://example.org/feed"},
    "rename": {"source": "https://example.org/feed", "name": "https://example.org/rss"},
    "pause": {"tag": "news"},
    "resume": {"tag": "news"},
    "configure": {"budget": "40/h"},
    "limit_host": {"host": "example.org", "interval": "10s"},
    "limit_tag": {"tag": "news", "least": "10%", "most": "20/h"},
}


def _schema(annotation: Any) -> dict[str, Any]:
    """Return the JSON schema of the type of an argument."""
    union = () if get_origin(annotation) is Literal else get_args(annotation)
    kinds = [kind for kind in union or (annotation,) if kind is not NoneType]
    if NoneType in union and len(kinds) == 1:
        return {"anyOf": [_schema(kinds[0]), {"type": "null"}]}
    if timedelta in kinds or datetime in kinds:
        schema = _DURATION if timedelta in kinds else _TIME
        return {"anyOf": [schema, {"type": "null"}]} if NoneType in union else schema
    if get_origin(annotation) is Literal:
        return {"type": "string", "enum": list(get_args(annotation))}
    if annotation is int:
        return dict(_WHOLE)
    if annotation in _TYPES:
        return {"type": _TYPES[annotation]}
    return {"type": "object"}


def _meanings(documented: Any) -> dict[str, str]:
    """Return what the docstring of a method, or of the class, says of its arguments."""
    text = (inspect.getdoc(documented) or "").partition("Arguments:\n")[2]
    return {name: " ".join(meaning.split()) for name, meaning in _ARGUMENT.findall(text)}


def _fields(method: str) -> dict[str, Any]:
    """Return the fields of a body: the arguments of a method."""
    function = getattr(Scheduler, method)
    types, fields = get_type_hints(function), dict[str, Any]()
    meanings = _meanings(Scheduler) | _meanings(function)
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if name == "fetch":
            for key, kind in (("lease", int), ("source", str)):
                fields[key] = _field(_schema(kind), None, _FETCHED[key])
        elif parameter.kind is parameter.VAR_KEYWORD:  # settings of a source
            fields = _without_defaults(_fields("add")) | fields
        else:
            pairs = name in ("items", "pings")
            schema = {"type": "array", "items": _ITEM} if pairs else _schema(types[name])
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = _field(schema, default, meanings.get(name))
    return fields


def _field(schema: dict[str, Any], default: Any, meaning: str | None) -> Any:
    return Annotated[Any, WithJsonSchema(schema)], Field(default, description=meaning)


def _without_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields of which those left out are not sent, even by clients that send defaults."""
    return {
        name: (kind, field if field.is_required() else Field(None, description=field.description))
        for name, (kind, field) in fields.items()
    }


@cache
def body_of(method: str) -> type[BaseModel]:
    """Return the body of a route that has the arguments of a method; others are refused."""
    examples = [_EXAMPLES[method]] if method in _EXAMPLES else []
    return create_model(
        f"{method.title().replace('_', '')}Body",
        __config__=ConfigDict(extra="forbid", json_schema_extra=dict[str, Any](examples=examples)),
        **_fields(method),
    )


_OUTCOME = create_model(
    "Outcome",
    __config__=ConfigDict(extra="forbid"),
    **{
        "outcome": (Literal["fetched", "failed", "released"], ...),
        **_without_defaults(_fields("release") | _fields("failed") | _fields("report")),
    },
)


def _list_of(model: type[BaseModel]) -> Any:
    return list[Annotated[dict[str, Any], WithJsonSchema(model.model_json_schema())]]


class Body(BaseModel):
    """Arguments. Others than these are refused."""

    model_config = ConfigDict(extra="forbid")


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [values]})


class LeaseBody(Body):
    model_config = _example(limit=50, timeout="2min", wait="30s")
    limit: Annotated[Any, WithJsonSchema({"type": "integer"})] = Field(
        1, description="Largest number of leases."
    )
    timeout: Annotated[Any, WithJsonSchema(_DURATION)] = Field(
        "5min", description="Until when each must be reported."
    )
    wait: Annotated[Any, WithJsonSchema(_DURATION)] = Field(
        0.0, description="How long to wait if nothing is due; at most a minute is waited."
    )


class RecordBody(Body):
    model_config = _example(
        outcomes=[
            {"outcome": "fetched", "lease": 17, "items": [[1795428000, 1.0]], "status": 200},
            {"outcome": "failed", "lease": 18, "status": 503},
            {"outcome": "released", "lease": 19},
        ]
    )
    outcomes: _list_of(_OUTCOME)  # type: ignore[valid-type]


class SignalManyBody(Body):
    model_config = _example(pings=[{"source": "https://example.org/feed", "kind": "sitemap"}])
    pings: _list_of(body_of("signal"))  # type: ignore[valid-type]


class UpdateManyBody(Body):
    model_config = _example(sources=[{"source": "https://example.org/feed", "weight": 2.0}])
    sources: _list_of(body_of("update"))  # type: ignore[valid-type]


class AddManyBody(Body):
    model_config = _example(sources=[{"source": "https://example.org/feed"}], exist_ok=True)
    sources: _list_of(body_of("add"))  # type: ignore[valid-type]
    exist_ok: bool = Field(False, description="Leave out those that are there.", strict=True)


class Leases(BaseModel):
    leases: list[Annotated[Lease, WithJsonSchema(_LEASE)]] = Field(description="Best first.")


class Recorded(BaseModel):
    recorded: bool = True


class RecordResults(BaseModel):
    results: list[bool] = Field(
        description="Whether each counts: false for leases that were reported before, or whose "
        "source was removed."
    )


class Added(BaseModel):
    added: int = Field(description="Number of new sources.")


class Done(BaseModel):
    done: bool = True


_WORTH = "What is expected to be collected beyond what would be without it, less the price."


class WorthOfPing(BaseModel):
    done: bool = True
    worth: float = Field(description=_WORTH)


class WorthsOfPings(BaseModel):
    done: bool = True
    worths: list[float] = Field(description=_WORTH)


class Names(BaseModel):
    sources: list[str]
    next: int = Field(description="`start` of the next page; 0 after the last.")


class Due(BaseModel):
    due_at: float | None = Field(description="Seconds since 1970; null if never.")


class Hook(BaseModel):
    path: str = Field(
        description="Whoever knows it can ping this source, and do nothing else.",
        examples=["/hooks/0f…?source=https%3A%2F%2Fexample.org%2Ffeed&kind=websub"],
    )
