"""Counters of brokers from Prometheus: presets, scrapes and their times, what is stale, and what the API may answer."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streaming.cluster import metric_reads
from streaming.cluster.metric_reads import PrometheusApi, QueryFailed
from streaming.collect.counters import (
    PRESETS,
    BrokerNames,
    Preset,
    PrometheusSource,
    Series,
    counter_pairs,
    finding,
    series_of,
)
from streaming.collect.group_table import GroupTable
from streaming.collect.rates import broker_rates, replica_rates
from streaming.collect.sample import BrokerCounters, ClusterSample
from streaming.contract.rates import RATES
from streaming.errors import UsageProblem
from streaming.runtime.jars import PROJECT_ROOT
from streaming.runtime.secrets import secrets_of
from streaming.settings import CollectSettings, Settings
from streaming.settings.prometheus import PrometheusFields
from tests.collect.by_row import partition_table, size_table
from tests.http_environment import UNUSABLE

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("prometheus_presets.json").read_text(encoding="utf-8"))
URL = "http://prometheus:9090"
NAMES = BrokerNames("instance", None, {})
PRESET = PRESETS["jmx_exporter"]
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"


def series(name: str, samples: Mapping[float, float], broker: int = 1, **labels: str) -> Series:
    return {"__name__": name, "instance": str(broker), **labels}, sorted(samples.items())


def pairs_of(
    rows: list[Series], *, now_s: float = 100.0, interval_s: float = 10.0, alive: tuple[int, ...] = (1, 2)
) -> Any:
    labels = [{"instance": str(broker)} for broker in alive]
    return counter_pairs(rows, labels, PRESET, NAMES, now_s=now_s, interval_s=interval_s)


def test_the_settings_name_the_presets() -> None:
    assert (
        set(get_args(PrometheusFields.model_fields["prometheus_preset"].annotation)) == PRESETS.keys() == GOLDEN.keys()
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_a_preset_asks_and_reads_as_it_did(name: str) -> None:
    preset, golden = PRESETS[name], GOLDEN[name]
    assert preset.selector() == golden["selector"]
    assert preset.stem_of(golden["total"]) == "bytes_in"
    assert BrokerNames(preset.broker_label, preset.broker_pattern, {}).broker_of(golden["total"]) == 2


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_knows_every_counter_and_no_other_series(name: str) -> None:
    preset = PRESETS[name]
    for rate in RATES:
        metric = preset.metric.format(meter=rate.meter.lower())
        assert preset.stem_of({"__name__": metric, "name": f"{rate.meter}PerSec"}) == rate.stem
    assert preset.stem_of({"__name__": "kafka_server_brokertopicmetrics_failedfetchrequests_total"}) is None


@pytest.mark.parametrize("value", ["", "broker", "1" * 30, "²", "-1"])
def test_a_label_that_names_no_broker_is_none(value: str) -> None:
    assert NAMES.broker_of({"instance": value}) is None


def test_a_rate_is_of_two_scrapes_by_their_own_times() -> None:
    found = pairs_of([series(BYTES_IN, {80.0: 100, 85.0: 150, 90.0: 400, 95.0: 700})])
    pair = found.pairs[1]
    assert (pair.first_ms, pair.last_ms) == (85_000, 95_000), "at least a sample's interval apart"
    assert (pair.earlier.totals["bytes_in"], pair.later.totals["bytes_in"]) == (150, 700)
    assert pair.later.totals["replication_bytes_in"] == 0.0, "a meter that the broker never made"


def test_scrapes_further_apart_than_samples_are_the_newest_two() -> None:
    pair = pairs_of([series(BYTES_IN, {30.0: 1, 60.0: 100, 90.0: 400})]).pairs[1]
    assert (pair.first_ms, pair.last_ms) == (60_000, 90_000)


@pytest.mark.parametrize("samples", [{}, {95.0: 1.0}, {10.0: 1.0, 20.0: 2.0}], ids=["none", "one scrape", "too old"])
def test_without_two_fresh_scrapes_a_broker_is_unknown(samples: Mapping[float, float]) -> None:
    assert pairs_of([series(BYTES_IN, samples)]).pairs == {}


def test_a_target_that_is_stale_now_is_unknown_though_its_samples_are_there() -> None:
    rows = [series(BYTES_IN, {80.0: 1, 95.0: 2}, broker) for broker in (1, 2)]
    assert pairs_of(rows, alive=(2,)).pairs.keys() == {2}


def test_a_scrape_without_bytes_in_or_with_no_number_is_none() -> None:
    rows = [
        series(BYTES_IN, {70.0: 1, 80.0: float("nan"), 90.0: 3}),
        series(BYTES_OUT, {70.0: 1, 80.0: 2, 90.0: 3, 95.0: 9}),
    ]
    pair = pairs_of(rows, interval_s=5.0).pairs[1]
    assert (pair.first_ms, pair.last_ms) == (70_000, 90_000)


def test_two_targets_of_one_broker_are_named_and_neither_is_used() -> None:
    rows = [series(BYTES_IN, {80.0: 1, 95.0: 2}, job=job) for job in ("kafka", "kafka-again")]
    found = pairs_of(rows)
    assert found.pairs == {}
    assert found.problems == ["brokers of more than one target: '1'"]


def test_a_label_that_names_no_broker_is_shown_with_the_settings_that_map_it() -> None:
    found = pairs_of([({"__name__": BYTES_IN, "instance": "kafka-1:7071"}, [(80.0, 1.0), (95.0, 2.0)])])
    (problem,) = found.problems
    assert problem.startswith("label instance names no broker: 'kafka-1:7071' (collect.prometheus_broker_pattern, ")


def observation(time_ms: int, found: Any) -> ClusterSample:
    nothing = partition_table({})
    return ClusterSample(
        time_ms, {1: None}, nothing, size_table({}), {}, {}, GroupTable({}), counter_pairs=found.pairs
    )  # fmt: skip


def test_rates_follow_and_a_restart_makes_them_unknown_not_negative() -> None:
    before = observation(90_000, pairs_of([]))
    after = observation(100_000, pairs_of([series(BYTES_IN, {80.0: 100, 90.0: 600})]))
    assert broker_rates(before, after, replica_rates(before, after))[1]["bytes_in_per_sec"] == 50.0
    restarted = observation(100_000, pairs_of([series(BYTES_IN, {80.0: 600, 90.0: 100})]))
    rates = broker_rates(before, restarted, replica_rates(before, restarted))[1]
    assert rates["replication_bytes_in_per_sec"] == 0.0, "what it holds, by its logs: nothing"


@given(
    st.lists(st.floats(0, 1e12), min_size=2, max_size=12), st.floats(0.5, 60), st.floats(1, 60),
    st.floats(0, 500),
)  # fmt: skip
def test_a_pair_is_two_scrapes_that_were_made_and_no_rate_is_negative(
    values: list[float], scrape_s: float, interval_s: float, age_s: float
) -> None:
    now_s = 100_000.0
    times = [now_s - age_s - scrape_s * place for place in reversed(range(len(values)))]
    samples = dict(zip(times, values, strict=True))
    found = pairs_of([series(BYTES_IN, samples)], now_s=now_s, interval_s=interval_s)
    if 1 not in found.pairs:
        assert age_s > 2 * scrape_s
        return
    pair = found.pairs[1]
    assert pair.last_ms == round(times[-1] * 1000)
    assert pair.later.totals["bytes_in"] == values[-1]
    assert pair.earlier.totals["bytes_in"] in values
    assert 0 < pair.passed_ms <= (times[-1] - times[0]) * 1000 + 1
    since = observation(1, found).counters_since(observation(0, pairs_of([])), 1)
    assert since is None or isinstance(since.later, BrokerCounters)
    if since is not None:
        assert since.later.totals["bytes_in"] >= since.earlier.totals["bytes_in"]


def source(answer: Callable[[httpx.Request], httpx.Response], **settings: Any) -> PrometheusSource:
    collect = CollectSettings.model_validate({"prometheus_url": URL, **settings})
    api = PrometheusApi.of(collect, httpx.MockTransport(answer))
    assert api is not None
    return PrometheusSource(api, collect)


def answering(brokers: tuple[int, ...]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        is_range = request.url.params["query"].endswith("s]")
        rows = [
            {"metric": dict(labels), **({"values": samples} if is_range else {"value": samples[-1]})}
            for labels, samples in (series(BYTES_IN, {85.0: 1, 95.0: 2}, broker) for broker in brokers)
        ]
        return httpx.Response(200, json={"status": "success", "data": {"resultType": "", "result": rows}})

    return answer


def test_a_source_reads_the_brokers_that_are_asked_for_and_names_those_without() -> None:
    reading = source(answering((1, 2, 9)))
    with structlog.testing.capture_logs() as lines:
        assert reading.read([1, 2, 3], now_ms=100_000).keys() == {1, 2}
        assert reading.read([1, 2, 3], now_ms=100_000).keys() == {1, 2}
    assert [row["problem"] for row in lines] == ["no fresh counters of brokers 3"], "once"


def test_check_shows_what_there_is_or_what_is_wrong() -> None:
    assert finding(source(answering((1, 2))), [1, 2], now_s=100.0) == (
        True,
        "preset jmx_exporter: counters of 2 brokers",
    )
    assert finding(source(answering((1,))), [1, 2], now_s=100.0) == (
        False, "preset jmx_exporter: no fresh counters of brokers 2",
    )  # fmt: skip
    passed, detail = finding(source(answering(()), prometheus_preset="msk"), [1], now_s=100.0)
    assert not passed
    assert detail == (
        'preset msk: no fresh series {__name__="kafka_server_BrokerTopicMetrics_Count",name=~"(BytesIn)PerSec"}'
    )


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (httpx.Response(401), "HTTP 401 Unauthorized"),
        (httpx.Response(200, text="<html>"), "JSONDecodeError"),
        (httpx.Response(200, text="[]"), "ValueError"),
        (httpx.Response(200, json={"status": "error", "error": "bad"}), "bad"),
        (httpx.Response(200, json={"status": "success", "data": {"result": [1]}}), "no answer of Prometheus"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_one_clear_line(response: httpx.Response, problem: str) -> None:
    reading = source(lambda _request: response)
    passed, detail = finding(reading, [1], now_s=100.0)
    assert not passed
    assert problem in detail
    assert "\n" not in detail
    assert reading.read([1], now_ms=100_000) == {}


def test_no_answer_and_one_that_is_too_large_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(QueryFailed, match=r"^http://prometheus:9090: ConnectError$"):
        source(gone).found(now_s=1.0)
    monkeypatch.setattr(metric_reads, "SCRAPE_BYTES_MAX", 100)
    with pytest.raises(QueryFailed, match="AnswerTooLarge"):
        source(answering((1, 2))).found(now_s=100.0)


@pytest.mark.parametrize(("variable", "value", "problem"), UNUSABLE)
def test_an_environment_that_the_http_client_refuses_is_a_failed_query(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(QueryFailed, match=f"^https://127.0.0.1:1: {problem}$"):
        PrometheusApi("https://127.0.0.1:1").query("up", time_s=1.0)


def test_logins_go_into_the_header_and_nowhere_else(tmp_path: Path) -> None:
    seen: list[str] = []

    def refusing(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization", ""))
        return httpx.Response(403)

    (tmp_path / "token").write_text("t0ken-t0ken\n")
    (tmp_path / "password").write_text("hunter2-hunter2\n")
    token = {"prometheus_bearer_token_file": tmp_path / "token"}
    login = {"prometheus_username": "reader", "prometheus_password_file": tmp_path / "password"}
    readings = []
    for given_, header in ((token, "Bearer t0ken-t0ken"), (login, "Basic ")):
        reading = source(refusing, **given_)
        readings.append(reading)
        _, detail = finding(reading, [1], now_s=1.0)
        assert seen[-1].startswith(header)
        shown = detail + repr(reading)
        assert "t0ken" not in shown
        assert "hunter2" not in shown
        (secret,) = secrets_of(Settings.model_validate({"collect": {"prometheus_url": URL, **given_}}))
        assert secret in ("t0ken-t0ken", "hunter2-hunter2")
    (tmp_path / "token").write_text("renewed-token\n")
    (tmp_path / "password").write_text("renewed-password\n")
    for reading, header in zip(
        readings, ("Bearer renewed-token", "Basic cmVhZGVyOnJlbmV3ZWQtcGFzc3dvcmQ="), strict=True
    ):
        finding(reading, [1], now_s=1.0)
        assert seen[-1] == header


def test_a_file_that_cant_be_read_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    settings = CollectSettings(prometheus_url=URL, prometheus_bearer_token_file=tmp_path / "none")
    with pytest.raises(UsageProblem, match=r"collect\.prometheus_bearer_token_file: "):
        PrometheusApi.of(settings)
    assert PrometheusApi.of(CollectSettings()) is None


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("prometheus_url", "prometheus:9090"), ("prometheus_matchers", 'job="a"} or {x="y"'),
        ("prometheus_matchers", "job"), ("prometheus_broker_pattern", r"b-\d+"), ("prometheus_preset", "grafana"),
    ],
)  # fmt: skip
def test_a_setting_that_cant_work_is_refused(setting: str, value: str) -> None:
    with pytest.raises(ValidationError):
        CollectSettings.model_validate({"prometheus_url": URL, setting: value})


def test_an_answer_is_read_as_numbers() -> None:
    with pytest.raises(ValueError, match="no answer of Prometheus"):
        series_of({"status": "success"})


PAGE = (PROJECT_ROOT / "docs" / "prometheus-source.md").read_text(encoding="utf-8")
BY_HAND = "set `prometheus_broker_pattern` or `prometheus_broker_ids`"


def line(name: str, preset: Preset) -> str:
    """The line of one preset on the page, as it has to be."""
    series = preset.metric.format(meter="bytesin")
    if preset.meter_label is not None:
        series += f'{{{preset.meter_label}="BytesInPerSec"}}'
    pattern = BY_HAND if preset.broker_pattern is None else f"`{preset.broker_pattern}`"
    return f"| `{name}` | `{series}` | `{preset.broker_label}` | {pattern} |"


def test_each_preset_stands_there_once() -> None:
    table = PAGE.partition("| `prometheus_preset` |")[2].partition("\n\n")[0].splitlines()[2:]
    assert table == [line(name, preset) for name, preset in PRESETS.items()]
