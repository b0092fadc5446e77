"""What is sent and answered, as OpenAPI documents it.

The scheduler checks the values, so that an argument is refused with the same words in Python and
over HTTP; here it says what JSON holds them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from ephemeral_crawl.live import Lease, reasons
from ephemeral_crawl.live.arguments import LONGEST_NAME
from ephemeral_crawl.live.causes import KINDS

_DURATION = {
    "anyOf": [{"type": "string", "examples": ["5min", "1.5h"]}, {"type": "number", "minimum": 0}],
    "description": "A duration such as '5min' or '24h', or seconds.",
}
_TIME = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}],
    "description": "ISO 8601 with a time zone, or seconds since 1970.",
}
_ITEM = {
    "type": "array",
    "prefixItems": [{"anyOf": [*_TIME["anyOf"], {"type": "null"}]}, {"type": "number"}],
    "minItems": 2,
    "maxItems": 2,
}

Duration = Annotated[Any, WithJsonSchema(_DURATION)]
Time = Annotated[Any, WithJsonSchema(_TIME)]
Name = Annotated[Any, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_NAME})]
Whole = Annotated[Any, WithJsonSchema({"type": "integer"})]
Number = Annotated[Any, WithJsonSchema({"type": "number"})]
Rate = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "string",
            "examples": ["20/h", "1/10s", "08:00 40/h, 22:00 10/h"],
            "description": "Budget units per time, or a table of times of day from which on there "
            "is each.",
        }
    ),
]
Bound = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "string",
            "examples": ["20/h", "10%"],
            "description": "Budget units per time, or a part of the budget; default: none.",
        }
    ),
]
Flag = Annotated[Any, WithJsonSchema({"type": "boolean"})]
Reason = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "string",
            "description": "What went wrong, for people; default: the status. It is cut to "
            f"{reasons.LONGEST} characters, without the credentials of URLs.",
        }
    ),
]
Failure = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "string",
            "enum": list(KINDS),
            "description": "With failed: what went wrong, if there was no status or it does not "
            "tell.",
        }
    ),
]
Items = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "array",
            "items": _ITEM,
            "description": "[published, worth] of each item that is new to you; all of them in the "
            "first report of a source. `published` is null if it is unknown.",
        }
    ),
]


class Body(BaseModel):
    """Arguments. Others than these are refused."""

    model_config = ConfigDict(extra="forbid")


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [values]})


class LeaseBody(Body):
    model_config = _example(limit=50, timeout="2min", wait="30s")
    limit: Whole = Field(1, description="Largest number of leases.")
    timeout: Duration = Field("5min", description="Until when each must be reported.")
    wait: Duration = Field(
        0.0, description="How long to wait if nothing is due; at most a minute is waited."
    )


class Sought(Body):
    lease: Whole = Field(None, description="The lease, even if it has expired;")
    source: Name = Field(None, description="or a source that was fetched without one.")


class ReportBody(Sought):
    model_config = _example(lease=17, items=[["2026-11-23T10:00:00Z", 1.0], [None, 1]], status=200)
    items: Items = Field(default_factory=list)
    status: Whole | None = Field(None, description="HTTP status.")
    at: Time = Field(None, description="When it was fetched; default now.")
    again_after: Duration = Field(0.0, description="Floor, as from `Cache-Control` or `ttl`.")


class FailedBody(Sought):
    model_config = _example(lease=17, status=429, retry_after="10min")
    retry_after: Duration = Field(None, description="`Retry-After`, for the whole host.")
    status: Whole | None = Field(None, description="HTTP status.")
    kind: Failure | None = None
    at: Time = Field(None, description="When it failed; default now.")
    reason: Reason | None = None


class ReleaseBody(Body):
    model_config = _example(lease=17, again_after="1min")
    lease: Whole
    again_after: Duration = Field(0.0, description="When it may be leased again.")
    reason: Reason | None = None


class Outcome(Body):
    """What became of a lease, or of a fetch without one."""

    outcome: Literal["fetched", "failed", "released"]
    lease: Whole = None
    source: Name = None
    items: Items = None
    status: Whole | None = None
    at: Time = None
    again_after: Duration = Field(None, description="With fetched and released.")
    retry_after: Duration = Field(None, description="With failed.")
    kind: Failure | None = None
    reason: Reason | None = Field(None, description="With failed and released.")


class RecordBody(Body):
    model_config = _example(
        outcomes=[
            {"outcome": "fetched", "lease": 17, "items": [[1795428000, 1.0]], "status": 200},
            {"outcome": "failed", "lease": 18, "status": 503},
            {"outcome": "released", "lease": 19},
        ]
    )
    outcomes: list[Annotated[dict[str, Any], WithJsonSchema(Outcome.model_json_schema())]]


class SignalBody(Body):
    model_config = _example(source="https://example.org/feed", kind="websub")
    source: Name
    kind: Name = Field("ping", description="Such as websub or sitemap; each learns its precision.")
    at: Time = Field(None, description="Default now.")


class SignalManyBody(Body):
    model_config = _example(pings=[{"source": "https://example.org/feed", "kind": "sitemap"}])
    pings: list[Annotated[dict[str, Any], WithJsonSchema(SignalBody.model_json_schema())]]


class SettingsBody(Body):
    host: Name | None = Field(None, description="For limit_host; sources of a host are alike.")
    cost: Number = Field(1.0, description="Budget units of a fetch.")
    min_interval: Duration = "1min"
    max_interval: Duration | None = Field(None, description="If the budget allows.")
    half_life: Duration | None = Field(None, description="Of its items; default the fleet's.")
    tag: Name | None = Field(None, description="Such as a section or a customer; for limit_tag.")
    weight: Number = Field(1.0, description="By which the worth of its items is multiplied.")


class AddBody(SettingsBody):
    model_config = _example(
        source="https://example.org/feed", host="example.org", max_interval="24h"
    )
    source: Name


class AddManyBody(Body):
    model_config = _example(sources=[{"source": "https://example.org/feed"}], exist_ok=True)
    sources: list[Annotated[dict[str, Any], WithJsonSchema(AddBody.model_json_schema())]]
    exist_ok: bool = Field(False, description="Leave out those that are there.", strict=True)


class UpdateBody(AddBody):
    model_config = _example(source="https://example.org/feed", max_interval="6h", paused=False)
    paused: Flag = None


class UpdateManyBody(Body):
    model_config = _example(sources=[{"source": "https://example.org/feed", "weight": 2.0}])
    sources: list[Annotated[dict[str, Any], WithJsonSchema(UpdateBody.model_json_schema())]]


class ConfigureBody(Body):
    model_config = _example(budget="40/h")
    budget: Rate = None
    zone: Name = Field(None, description="Time zone of a budget by the hour, as Europe/Paris.")
    burst: Number = Field(
        None, description="Budget units that can be spent at once; with a new budget, its default."
    )
    half_life: Duration = Field(None, description="Of the worth of items; or 'learn'.")
    worth_at: Name = Field(None, description="publication or fetch.")
    explore: Number = Field(None, description="Fraction of the budget for visits in rotation.")


class SourceBody(Body):
    model_config = _example(source="https://example.org/feed")
    source: Name


class PauseBody(Body):
    model_config = _example(tag="news")
    source: Name = Field(None, description="Or a host, or a tag.")
    host: Name = Field(None, description="*.example.org: example.org and all hosts below.")
    tag: Name = None


class TagBody(Body):
    model_config = _example(tag="news", least="10%", most="20/h")
    tag: Name
    least: Bound | None = None
    most: Bound | None = None


class RenameBody(Body):
    model_config = _example(source="https://example.org/feed", name="https://example.org/rss")
    source: Name
    name: Name


class AdoptBody(Body):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": []})
    exported: dict[str, Any] = Field(description="What `export` has returned.")


class HostBody(Body):
    model_config = _example(host="example.org", interval="10s")
    host: Name = Field(description="*.example.org: example.org and all hosts below, together.")
    interval: Duration = Field(description="Least time between two fetches; 0: no limit.")


class Leases(BaseModel):
    leases: list[Lease] = Field(description="Best first.")


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
