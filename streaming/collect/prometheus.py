"""Counters of brokers from a Prometheus that scrapes them, in the place of their JMX endpoints."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from streaming.cluster.prometheus_api import PrometheusApi, QueryFailed
from streaming.collect.observation import CounterPair
from streaming.collect.prometheus_presets import METERS, PRESETS, BrokerNames
from streaming.collect.prometheus_samples import Found, counter_pairs, series_of
from streaming.contract.rates import BYTES_IN
from streaming.settings import CollectSettings

log = structlog.get_logger()

LOOK_BACK_MIN_S = 200
"""Long enough for three scrapes a minute apart."""
LOOK_BACK_INTERVALS = 3
BYTES_IN_ONLY = {BYTES_IN.meter: BYTES_IN.stem}


@dataclass(slots=True)
class PrometheusSource:
    """Reads counters look after look; a problem is logged when it begins, not at each look."""

    api: PrometheusApi
    settings: CollectSettings
    _problems: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, settings: CollectSettings) -> "PrometheusSource | None":
        """Returns the source that the settings name; None where they name none. Raises UsageProblem."""
        api = PrometheusApi.of(settings)
        return None if api is None else cls(api, settings)

    def read(self, brokers: Collection[int], *, now_ms: int) -> Mapping[int, CounterPair]:
        """Two scrapes of each of `brokers`, at least a sample's interval apart where there are; unknown ones are left
        out.
        """
        try:
            found = self.found(now_s=now_ms / 1000)
        except QueryFailed as error:
            self._note([str(error)])
            return {}
        unknown = sorted(set(brokers) - found.pairs.keys())
        named = ", ".join(map(str, unknown))
        self._note([*found.problems, *([f"no fresh counters of brokers {named}"] if unknown else [])])
        return {broker: pair for broker, pair in found.pairs.items() if broker in brokers}

    def found(self, *, now_s: float) -> Found:
        """Returns what Prometheus shows of all brokers; raises QueryFailed."""
        preset, names = PRESETS[self.settings.prometheus_preset], self._names()
        interval_s = self.settings.sample_interval_ms / 1000
        span_s = max(LOOK_BACK_MIN_S, round(LOOK_BACK_INTERVALS * interval_s))
        matchers = self.settings.prometheus_matchers
        # Raw samples of a range don't show that a series has ended; an instant query leaves out what is stale.
        alive = self._series(preset.selector(matchers, meters=BYTES_IN_ONLY), now_s)
        series = self._series(f"{preset.selector(matchers, meters=METERS)}[{span_s}s]", now_s)
        labels = [row for row, _ in alive if not row.get("topic")]
        return counter_pairs(series, labels, preset, names, now_s=now_s, interval_s=interval_s)

    def _series(
        self, expression: str, now_s: float
    ) -> Sequence[tuple[Mapping[str, str], Sequence[tuple[float, float]]]]:
        try:
            return series_of(self.api.query(expression, time_s=now_s))
        except ValueError as error:
            raise QueryFailed(str(error)) from None

    def _names(self) -> BrokerNames:
        preset, settings = PRESETS[self.settings.prometheus_preset], self.settings
        return BrokerNames(
            settings.prometheus_broker_label or preset.broker_label,
            settings.prometheus_broker_pattern or preset.broker_pattern,
            settings.prometheus_broker_ids,
        )

    def _note(self, problems: Sequence[str]) -> None:
        for problem in sorted(set(problems) - self._problems):
            log.warning("prometheus_incomplete", problem=problem)
        self._problems = frozenset(problems)


def finding(source: PrometheusSource, brokers: Collection[int], *, now_s: float) -> tuple[bool, str]:
    """The line of `rebalancer check`: whether there are counters of each of `brokers`, or what is wrong."""
    preset = source.settings.prometheus_preset
    try:
        found = source.found(now_s=now_s)
    except QueryFailed as error:
        return False, str(error)
    unknown = sorted(set(brokers) - found.pairs.keys())
    if not found.pairs and not found.problems:
        selector = PRESETS[preset].selector(source.settings.prometheus_matchers, meters=BYTES_IN_ONLY)
        return False, f"preset {preset}: no fresh series {selector}"
    problems = [*found.problems, *([f"no fresh counters of brokers {_list(unknown)}"] if unknown else [])]
    if problems:
        return False, f"preset {preset}: {'; '.join(problems)}"
    return True, f"preset {preset}: counters of {len(found.pairs)} brokers"


def _list(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
