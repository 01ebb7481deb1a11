"""What speaks against more copying right now: brokers that answer producers more slowly than when it began.

Asks the brokers' JMX endpoints (`collect.jmx_endpoints`) for Kafka's own p99 of produce requests, waiting for followers
included: what a producer with acks=all sees, less its network. The core decides how slow is too slow. A broker whose
endpoint is not given, or does not answer, holds nothing back.
"""

from collections.abc import Mapping

from assignor_core.execution.caution import LatencyBound, brokers_too_slow
from assignor_core.intervals import is_due
from streaming.cluster.metric_reads import sample_value, scrape

READ_INTERVAL_MS = 5_000
LIMIT_S = 2.0
"""How long one endpoint may take for its whole answer: the execution waits for all of them."""
SERIES = 'kafka_network_requestmetrics_totaltimems_p99{request="Produce"'
"""Name and first label of the series with the p99 latency of produce requests, as `deploy/jmx/kafka-broker.yaml` names
it.
"""


class LatencyPressure:
    """Looks again at most every few seconds."""

    def __init__(self, endpoints: Mapping[int, str], bound: LatencyBound) -> None:
        """`endpoints`: URL of `/metrics` by broker id."""
        self._endpoints = endpoints
        self._bound = bound
        self._read_ms: int | None = None
        self._before_ms: float | None = None
        self._reason: str | None = None

    def highest_ms(self) -> float | None:
        """The p99 of the slowest broker, ms; None where no broker shows it."""
        return max(self._latencies().values(), default=None)

    def reason(self, before_ms: float | None, *, now_ms: int) -> str | None:
        """Why to hold back, naming the slowest broker; None if nothing does. `before_ms` is `highest_ms` then."""
        if before_ms is None:
            return None
        if before_ms != self._before_ms or is_due(self._read_ms, READ_INTERVAL_MS, now_ms):
            self._read_ms, self._before_ms = now_ms, before_ms
            slow = brokers_too_slow(before_ms, self._latencies(), self._bound)
            self._reason = _reason_text(slow[0], before_ms) if slow else None
        return self._reason

    def _latencies(self) -> dict[int, float]:
        # The collector logs an endpoint that does not answer, at every sample.
        answers = scrape(self._endpoints, limit_s=LIMIT_S).answers
        latencies = {broker: _produce_p99_ms(answer) for broker, answer in sorted(answers.items())}
        return {broker: latency for broker, latency in latencies.items() if latency is not None}


def _reason_text(slowest: tuple[int, float], before_ms: float) -> str:
    broker, latency_ms = slowest
    return f"broker {broker} answers producers in {latency_ms:,.0f} ms (p99), {before_ms:,.0f} ms at the start"


def _produce_p99_ms(exposition: str) -> float | None:
    line = next((line for line in exposition.splitlines() if line.startswith(SERIES)), None)
    return None if line is None else sample_value(line)
