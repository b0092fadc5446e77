"""Metrics in the text format of Prometheus. No name of a source or host is a label."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ephemeral_crawl.live import Status

_PREFIX = "ephemeral_crawl"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class Requests:
    """Numbers of requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.number = PrometheusCounter(
            f"{_PREFIX}_http_requests",
            "Requests answered, by route and status code; 0 if the client left.",
            ["route", "status"],
            registry=self.registry,
        )
        self.time = Histogram(
            f"{_PREFIX}_http_request_duration_seconds",
            "Time from the headers of a request to the end of its answer, waits included.",
            ["route"],
            registry=self.registry,
            buckets=_BUCKETS,
        )

    def text(self, status: Status) -> bytes:
        """Return all metrics, with those of the scheduler."""
        scheduler = CollectorRegistry()
        scheduler.register(_Snapshot(status))
        return generate_latest(scheduler) + generate_latest(self.registry)


class _Snapshot(Collector):
    """The status of a scheduler as metrics."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        s = self._status
        for name, value, meaning in (
            ("sources", s.sources, "Sources."),
            ("sources_paused", s.paused, "Sources that are paused."),
            ("sources_new", s.new, "Sources that were not fetched yet."),
            ("sources_failing", s.failing, "Sources of which the last fetch failed."),
            (
                "sources_due",
                s.due,
                "Sources that may be fetched, and whose index has reached the price.",
            ),
            ("sources_leased", s.leased, "Sources that are leased at present."),
            ("price", s.price, "Worth that the last budget unit buys."),
            ("balance_units", s.balance, "Budget units that can be spent now."),
            ("budget_units_per_second", s.budget / 3600.0, "Budget."),
        ):
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, value)
        counts = s.counts
        for name, value, meaning in (
            ("leases", counts.leases, "Leases given."),
            ("pings", counts.pings, "Pings received."),
            ("items", counts.items, "Items reported."),
            ("collected_worth", counts.collected, "Worth of reported items when fetched."),
            ("looks", counts.looks, "Fetches of sources that announce what others have."),
            ("looks_cost_units", counts.looks_cost, "Budget units that these took."),
            ("looks_worth", counts.looks_worth, "Worth of the pings that they brought."),
        ):
            yield CounterMetricFamily(f"{_PREFIX}_{name}", meaning, value)
        outcomes = CounterMetricFamily(
            f"{_PREFIX}_outcomes", "Outcomes of leases and fetches.", labels=["outcome"]
        )
        for name, value in (
            ("fetched", counts.fetched),
            ("failed", counts.failed),
            ("released", counts.released),
        ):
            outcomes.add_metric([name], value)
        yield outcomes
