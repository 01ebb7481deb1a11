"""Byte counters of one broker from its jmx_exporter endpoint, with the names of `deploy/jmx/kafka-broker.yaml`."""

import math
import re
from collections.abc import Iterator, Mapping

import httpx
import structlog
from prometheus_client.parser import text_string_to_metric_families

from streaming.cluster.jmx_endpoints import scrape
from streaming.collect.look import Look
from streaming.collect.observation import BrokerCounters
from streaming.contract.rates import BYTES_IN, BYTES_OUT, RATES
from streaming.runtime.secrets import without_user_info

log = structlog.get_logger()

PREFIX = "kafka_server_brokertopicmetrics_"
LIMIT_S = 3.0
"""How long one endpoint may take for its whole answer."""
PLAIN_LINE = re.compile(
    rf'^{PREFIX}(\w+)(?:{{topic="([\w.-]+)",?}})? (\d[\d.]*(?:[eE][+-]?\d+)?)$', re.MULTILINE | re.ASCII
)
"""Meter, topic and value of a line as jmx_exporter writes it, without further labels and timestamp."""
Series = tuple[str, str | None, float]
FIELDS = {f"{rate.meter.lower()}_total": rate.stem for rate in RATES}


def read_counters(
    endpoints: Mapping[int, str], look: Look, *, transport: httpx.AsyncBaseTransport | None = None
) -> dict[int, BrokerCounters]:
    """Counters by broker; an endpoint that doesn't answer, or lacks one, costs its broker's, which is logged."""

    def note(broker: int) -> None:
        look.note("counters", broker)

    scrapes = scrape(endpoints, limit_s=LIMIT_S, on_answer=note, transport=transport)
    for broker, problem in scrapes.problems.items():
        log.warning("jmx_unreachable", broker=broker, url=without_user_info(endpoints[broker]), error=problem)
    by_broker = {broker: parse_counters(text) for broker, text in sorted(scrapes.answers.items())}
    for broker, counters in by_broker.items():
        if counters is None:
            url = without_user_info(endpoints[broker])
            log.warning("jmx_incomplete", broker=broker, url=url, hint="use the rules of deploy/jmx/kafka-broker.yaml")
    return {broker: counters for broker, counters in by_broker.items() if counters is not None}


def parse_counters(exposition: str) -> BrokerCounters | None:
    """Counters in a scrape; the series without a topic is the broker's total of those with one.

    None without any, and where one of them can't be read: it would pass for one that the broker does not have.
    """
    if not exposition.endswith("\n"):  # the format asks for it: this is another format, or torn off
        return None
    totals: dict[str, float] = {}
    by_topic: dict[str, dict[str, float]] = {BYTES_IN.stem: {}, BYTES_OUT.stem: {}}
    try:
        for meter, topic, value in _series(exposition):
            name = FIELDS.get(meter)
            if name is None:
                continue
            if not math.isfinite(value):
                return None
            if topic is None:
                totals[name] = value
            elif name in by_topic:
                by_topic[name][topic] = value
    except (ValueError, LookupError, ArithmeticError):  # the parser raises all three for lines that are none
        return None
    # Brokers without any follower or reassignment never made those meters: their count is zero.
    complete = {name: totals.get(name, 0.0) for name in FIELDS.values()}
    counters = BrokerCounters(complete, by_topic[BYTES_OUT.stem], by_topic[BYTES_IN.stem])
    return counters if BYTES_IN.stem in totals else None


def _series(exposition: str) -> Iterator[Series]:
    """Series of the lines that concern us: what else the endpoint exports need not be sound.

    A large broker has thousands of lines, all alike; where one is not, prometheus_client reads them, in 17 us each.
    """
    plain = PLAIN_LINE.findall(exposition)
    if len(plain) == exposition.count("\n" + PREFIX) + exposition.startswith(PREFIX):
        return ((meter, topic or None, float(value)) for meter, topic, value in plain)
    return _series_of_any_form(exposition)


def _series_of_any_form(exposition: str) -> Iterator[Series]:
    for line in exposition.split("\n"):
        if line.startswith(PREFIX):
            for family in text_string_to_metric_families(line):
                for sample in family.samples:
                    yield sample.name.removeprefix(PREFIX), sample.labels.get("topic"), sample.value
