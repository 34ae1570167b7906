"""Measurements for Prometheus: requests, batches, and what waits."""

from __future__ import annotations

import os
from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The measurements of one process, or of all workers if there are several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "elmokit_requests", "Answered requests.", ["route", "method", "status"],
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "elmokit_request_seconds", "Time from the first byte to the last.", ["route"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self._batch_requests = Histogram(
            "elmokit_batch_requests", "Requests of a batch.", ["model"],
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256), registry=self.registry,
        )  # fmt: skip
        self._batch_seconds = Histogram(
            "elmokit_batch_seconds", "Time of a batch.", ["model"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self._batch_tokens = Histogram(
            "elmokit_batch_tokens", "Tokens of a batch.", ["model"],
            buckets=TOKENS, registry=self.registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "elmokit_waiting_tokens", "Tokens that wait for a batch.", ["model"],
            registry=self.registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._in_flight = Gauge(
            "elmokit_requests_in_flight", "Requests that wait or are answered.",
            registry=self.registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._of_request: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        key = route, method, status
        if key not in self._of_request:  # Finding them takes longer than counting.
            counter = self._requests.labels(route, method, str(status))
            self._of_request[key] = counter, self._seconds.labels(route)
        counter, histogram = self._of_request[key]
        counter.inc()
        histogram.observe(seconds)

    def batches(self, model: str) -> Callable[[int, int, float], None]:
        """Return what counts the batches of a model: by requests, tokens and seconds."""

        def count(requests: int, tokens: int, seconds: float) -> None:
            self._batch_requests.labels(model).observe(requests)
            self._batch_tokens.labels(model).observe(tokens)
            self._batch_seconds.labels(model).observe(seconds)

        return count

    def waiting(self, model: str, tokens: int) -> None:
        """Set the number of tokens that wait for a model."""
        self._waiting.labels(model).set(tokens)

    def in_flight(self, requests: int) -> None:
        """Set the number of requests in memory."""
        self._in_flight.set(requests)

    def render(self) -> bytes:
        """Return all measurements as text."""
        registry = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
