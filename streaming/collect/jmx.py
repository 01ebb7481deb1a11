"""Byte counters of one broker from its jmx_exporter endpoint, with the names of `deploy/jmx/kafka-broker.yaml`."""

import math

import httpx
import structlog
from prometheus_client.parser import text_string_to_metric_families

from streaming.collect.observation import BrokerCounters
from streaming.contract.rates import BYTES_IN, BYTES_OUT, RATES

log = structlog.get_logger()

PREFIX = "kafka_server_brokertopicmetrics_"
FIELDS = {f"{rate.meter.lower()}_total": rate.stem for rate in RATES}


def read_counters(client: httpx.Client, broker: int, url: str) -> BrokerCounters | None:
    """Counters of `broker`; None where the endpoint doesn't answer or lacks one, which is logged."""
    try:
        answer = client.get(url).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        log.warning("jmx_unreachable", broker=broker, url=url, error=type(error).__name__)
        return None
    try:
        counters = parse_counters(answer.text)
    except ValueError:  # a login page, the metrics of something else
        counters = None
    if counters is None:
        log.warning("jmx_incomplete", broker=broker, url=url, hint="use the rules of deploy/jmx/kafka-broker.yaml")
    return counters


def parse_counters(exposition: str) -> BrokerCounters | None:
    """Counters in a scrape; the series without a topic is the broker's total of those with one.

    None without any; raises ValueError where it is no scrape, or counts what is no number.
    """
    totals: dict[str, float] = {}
    by_topic: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            name = FIELDS.get(sample.name.removeprefix(PREFIX))
            if name is None:
                continue
            if not math.isfinite(sample.value):
                raise ValueError(f"{sample.name} is {sample.value}")
            if "topic" not in sample.labels:
                totals[name] = sample.value
            elif name == BYTES_OUT.stem:
                by_topic[sample.labels["topic"]] = sample.value
    # Brokers without any follower or reassignment never made those meters: their count is zero.
    complete = {name: totals.get(name, 0.0) for name in FIELDS.values()}
    return BrokerCounters(complete, by_topic) if BYTES_IN.stem in totals else None
