"""Settings: who wins, what is refused and in which words, and the reference file that shows them all."""

import json
import re
import runpy
from pathlib import Path
from typing import get_args

import click
import pytest
import yaml
from click.testing import CliRunner
from pydantic import SecretStr

from streaming.cli import run
from streaming.commands.config import config
from streaming.commands.options import in_use, settings_options
from streaming.config import GONE, flatten, load_effective
from streaming.errors import UsageProblem
from streaming.settings import Settings
from streaming.settings.reference import reference

REFERENCE = Path(__file__).resolve().parents[2] / "conf" / "reference.yaml"


def write(folder: Path, text: str) -> Path:
    file = folder / "settings.yaml"
    file.write_text(text)
    return file


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = write(tmp_path, "pipeline: {window_ms: 1000, watermark_ms: 2000, trigger_interval_ms: 3000}")
    environment = {"REBALANCER_PIPELINE__WATERMARK_MS": "20", "REBALANCER_PIPELINE__TRIGGER_INTERVAL_MS": "30"}
    effective = load_effective(file, {"pipeline.trigger_interval_ms": 300}, environment)
    pipeline = effective.settings.pipeline
    assert (pipeline.window_ms, pipeline.watermark_ms, pipeline.trigger_interval_ms) == (1000, 20, 300)
    assert effective.origin("pipeline.window_ms") == f"file {file}"
    assert effective.origin("pipeline.watermark_ms") == "environment REBALANCER_PIPELINE__WATERMARK_MS"
    assert effective.origin("pipeline.trigger_interval_ms") == "flag"
    assert effective.origin("serve.port") == "default"


@pytest.mark.parametrize("written", ["1", "'1'"])
def test_one_capacity_of_a_broker_is_overridden_and_the_others_stay(written: str, tmp_path: Path) -> None:
    file = write(tmp_path, f"planner: {{capacities: {{{written}: {{bytes_in_per_sec: 5, disk_bytes: 10}}}}}}")
    flag = {"planner.capacities.1.disk_bytes": "20"}
    variable = {"REBALANCER_PLANNER__CAPACITIES__1__DISK_BYTES": "20"}
    section = {"planner.capacities": "{1: {disk_bytes: 20}}"}
    for flags, environment in ((flag, {}), ({}, variable), (section, {})):
        capacity = load_effective(file, flags, environment).settings.planner.capacities[1]
        assert (capacity.bytes_in_per_sec, capacity.disk_bytes) == (5, 20)


def test_what_stands_beside_a_merged_map_wins_and_a_key_that_stands_twice_is_still_refused(tmp_path: Path) -> None:
    text = "planner: {capacities: {1: &large {bytes_in_per_sec: 5, disk_bytes: 10}, 2: {<<: *large, disk_bytes: 20%s}}}"
    settings = load_effective(write(tmp_path, text % ""), None, {}).settings
    capacity = settings.planner.capacities[2]
    assert (capacity.bytes_in_per_sec, capacity.disk_bytes) == (5, 20)
    with pytest.raises(UsageProblem, match="line 1: key 'disk_bytes' stands twice"):
        load_effective(write(tmp_path, text % ", disk_bytes: 30"), None, {})


def test_a_section_that_was_empty_is_filled(tmp_path: Path) -> None:
    effective = load_effective(write(tmp_path, "kafka:"), None, {"REBALANCER_KAFKA__CLUSTER_NAME": "c"})
    assert effective.settings.kafka.cluster_name == "c"
    assert effective.origin("kafka.bootstrap_servers") == "default"


def test_lists_and_maps_come_from_the_environment() -> None:
    environment = {
        "REBALANCER_KAFKA__BOOTSTRAP_SERVERS": "a:1, b:2",
        "REBALANCER_COLLECT__JMX_ENDPOINTS": '{"1": "http://a:7071/metrics"}',
        "REBALANCER_PORT": "tcp://10.0.0.1:80",  # what Kubernetes sets for a service of that name
    }
    settings = load_effective(None, None, environment).settings
    assert settings.kafka.bootstrap_servers == ["a:1", "b:2"]
    assert settings.collect.jmx_endpoints == {1: "http://a:7071/metrics"}


def test_settings_within_a_map_are_read_as_all_others() -> None:
    given = {"url": "https://a.example.org", "secret_file": "", "kinds": "plan_waits,group_stopped"}
    variables = {f"REBALANCER_NOTIFY__WEBHOOKS__OPS__{name.upper()}": text for name, text in given.items()}
    flags = {f"notify.webhooks.ops.{name}": text for name, text in given.items()}
    for settings in (load_effective(None, None, variables).settings, load_effective(None, flags, {}).settings):
        webhook = settings.notify.webhooks["ops"]
        assert (webhook.secret_file, webhook.kinds) == (None, ["plan_waits", "group_stopped"])
    unlimited = {"REBALANCER_PLANNER__CAPACITIES__1__DISK_BYTES": "null"}
    assert load_effective(None, None, unlimited).settings.planner.capacities[1].disk_bytes is None


def test_names_of_others_within_a_map_keep_their_letters() -> None:
    environment = {
        "REBALANCER_TOPICS__FOREIGN__BrokerMetrics": "telegraf-json",
        "REBALANCER_TOPICS__BROKER_IDS__Host-1": "1",
        "REBALANCER_NOTIFY__WEBHOOKS__OPS__URL": "https://a.example.org",
    }
    settings = load_effective(None, None, environment).settings
    assert settings.topics.foreign == {"BrokerMetrics": "telegraf-json"}
    assert settings.topics.broker_ids == {"Host-1": 1}
    assert list(settings.notify.webhooks) == ["ops"]


WRONG = {
    "kafka: {bootstrap_server: [a:1]}": "kafka.bootstrap_server: unknown key (file {file}); did you mean ",
    "kafka: {bootstrap_servers: [a]}": "kafka.bootstrap_servers: 'a' is not host:port, found ['a'] (file {file})",
    "pipeline: {window_ms: 0}": "pipeline.window_ms: input should be greater than or equal to 1, found 0 (file {file})",
    "pipeline: {driver_java_options: UseSerialGC}": (
        "pipeline.driver_java_options: 'UseSerialGC' is no option of Java, which begin with -, found 'UseSerialGC' "
        "(file {file})"
    ),
    "pipeline: {driver_java_options: -Xss4m -Xmx4g}": "pipeline.driver_java_options: pipeline.driver_memory sets -Xmx",
    "trigger: {resources: [leaders]}": "trigger.resources.0: input should be 'bytes_in', 'bytes_out'",
    "trigger: {windows_over: 6}": "trigger: windows_over 6 exceeds windows_considered 5 (file {file})",
    "trigger: {enter_ratio: 1.1}": "trigger: exit_ratio 1.15 must be below enter_ratio 1.1 (file {file})",
    "a: 1\na: 2": "settings file {file}, line 2: key 'a' stands twice",
    "kafka: [1, 2]": "kafka: must be a section with keys of its own, found [1, 2] (file {file})",
    "kafka: {bootstrap_servers: []}": "kafka.bootstrap_servers: must hold at least 1 entry, found [] (file {file})",
    "collect: {jmx_endpoints: 1}": "collect.jmx_endpoints: input should be a section of keys and values, found 1 ",
    "planner: {capacities: {1: {}, '1': {}}}": "settings file {file}, line 1: key '1' stands twice",
    "collect: {sample_interval_ms: on}": "collect.sample_interval_ms: must be a number, not true or false; ",
    "control: {movements_per_broker_max: yes}": "control.movements_per_broker_max: must be a number, not true or ",
    "trigger: {enter_ratio: on}": "trigger.enter_ratio: must be a number, not true or false; ",
    "planner: {movements_max: no}": "planner.movements_max: must be a number, not true or false; ",
    "planner: {capacities: {1: {disk_bytes: yes}}}": "planner.capacities.1.disk_bytes: must be a number, not true ",
    "planner: {capacities: {1: {disk_bytes: .inf}}}": (
        "planner.capacities.1.disk_bytes: input should be a finite number, found inf (file {file})"
    ),
    "trigger: {enter_ratio: .inf}": "trigger.enter_ratio: input should be a finite number, found inf ",
    "topics: {broker_ids: {a: yes}}": "topics.broker_ids: must be a number, not true or false; ",
    "- 1": "settings file {file}: holds a list, must hold sections like 'kafka:'",
    "kafka: [": "settings file {file}, line 1: ",
    "? [a]\n: b": "settings file {file}, line 1: ['a'] can't be a key",
    "a: 2026-02-30": "settings file {file}: day is out of range for month",
    "planner: {excluded_topics: '('}": "planner.excluded_topics: is no regular expression: missing ), ",
    "collect: {groups_include: '*'}": "collect.groups_include: is no regular expression: nothing to repeat ",
    "collect: {groups_exclude: '[a'}": "collect.groups_exclude: is no regular expression: unterminated ",
    "control: {lag_groups: '(?P<'}": "control.lag_groups: is no regular expression: ",
    "topics: {byte_rate: a, consumer_lag: a}": "topics: byte_rate and consumer_lag must be two topics, both are 'a' ",
    "topics: {byte_rate: a, foreign: {a: telegraf-json}}": "topics: foreign must not name 'a', which is byte_rate or ",
    "collect: {jmx_endpoints: {1: 'http://u:p@a', 2: 'http://u:p@a'}}": (
        "collect.jmx_endpoints: brokers 1 and 2 have the same URL; each broker needs its own (file {file})"
    ),
    "storage: {tables: ~/t}": "storage.tables: a leading ~ is not read as a home: write the whole path, found '~/t' ",
    "storage: {checkpoints: ~me}": "storage.checkpoints: a leading ~ is not read as a home",
    "storage: {tables: 'memory:x'}": "storage.tables: must outlive the process, found 'memory:x' (file {file}), ",
    "kafka: {ssl_ca_file: ~/ca.pem}": "kafka.ssl_ca_file: a leading ~ is not read as a home",
    "kafka: {ssl_ca_file: ''}": "kafka.ssl_ca_file: must name a file; null, or no such key, for none, found '' ",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_a_wrong_file_gives_one_line_that_names_key_and_value(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(UsageProblem) as caught:
        load_effective(file, None, {})
    assert str(caught.value).startswith(message.format(file=file))
    assert "\n" not in str(caught.value)


def test_each_wrong_setting_has_a_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "serve: {port: x}\nlog: {level: loud}\nkafka: {cluster: 1}")
    assert run(["status", "--config", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["error", "kafka.cluster"], ["error", "serve.port"], ["error", "log.level"]
    ]  # fmt: skip
    assert lines[0].endswith(f"unknown key (file {file}); did you mean kafka.cluster_id?")


GONE_FOR = {
    "trigger.relief_min": "a plan that is worth it",
    "trigger.cheap_hour_wait_max_ms": "control.maintenance_windows",
    "trigger.windows_over_urgent": "two thirds of trigger.windows_over",
    "planner.statistic": "every window is planned on",
    "planner.finish_movements_max": "planner.movements_max",
}


@pytest.mark.parametrize("key", GONE)
def test_a_setting_of_an_older_file_gets_one_line_that_names_what_holds_instead(tmp_path: Path, key: str) -> None:
    assert GONE.keys() == GONE_FOR.keys()
    assert key not in flatten(Settings())
    section, _, name = key.partition(".")
    file = write(tmp_path, f"{section}: {{{name}: 1}}")
    with pytest.raises(UsageProblem) as caught:
        load_effective(file, None, {})
    start = f"{key}: this setting is gone, remove it (file {file}); "
    assert str(caught.value).startswith(start)
    assert GONE_FOR[key] in str(caught.value)
    assert "\n" not in str(caught.value)


HINTS = {
    "control: {throttle_bytes_per_sec: 50MB}": "write 50000000",
    "control: {throttle_bytes_per_sec: 1.5 GiB/s}": "write 1610612736",
    "planner: {capacities: {1: {disk_bytes: 2TB}}}": "write 2000000000000",
    "kafka: {request_timeout_ms: 15s}": "write 15000",
    "pipeline: {retention_ms: 7d}": "write 604800000",
    "kafka: {bootstrap_servers: 'a:1, b:2'}": 'write ["a:1", "b:2"]',
    "kafka: {cluster_name: 12}": 'write "12"',
}


@pytest.mark.parametrize(("text", "hint"), HINTS.items())
def test_a_value_of_the_wrong_kind_comes_with_the_one_to_write(text: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem) as caught:
        load_effective(write(tmp_path, text), None, {})
    assert str(caught.value).endswith(f"; {hint}")
    ((section, (key, value)),) = ((name, *rows.items()) for name, rows in yaml.safe_load(text).items())
    written = yaml.safe_load(hint.removeprefix("write "))
    if not isinstance(value, dict):
        flat = flatten(load_effective(None, {f"{section}.{key}": written}, {}).settings)
        assert flat[f"{section}.{key}"] == written


@pytest.mark.parametrize("text", ["serve: {port: 80MB}", "kafka: {request_timeout_ms: 15 parsecs}"])
def test_what_is_meant_is_not_guessed(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem) as caught:
        load_effective(write(tmp_path, text), None, {})
    assert "write" not in str(caught.value)


def test_config_shows_where_values_came_from_and_only_what_was_changed_if_asked_to(tmp_path: Path) -> None:
    file = write(tmp_path, "serve: {port: 9999}")
    given = ["--config", str(file), "--set", "log.level=debug", "--json"]
    rows, changed = (json.loads(CliRunner().invoke(config, row).stdout) for row in (given, [*given, "--changed"]))
    assert changed == [
        {"key": "serve.port", "value": 9999, "origin": f"file {file}"},
        {"key": "log.level", "value": "debug", "origin": "flag"},
    ]
    assert {row["key"] for row in rows if row["origin"] == "default"} == {row["key"] for row in rows} - {
        row["key"] for row in changed
    }


def test_of_many_wrong_settings_the_first_ten_are_named(tmp_path: Path) -> None:
    file = write(tmp_path, "kafka: {" + ", ".join(f"x{number}: 1" for number in range(13)) + "}")
    with pytest.raises(UsageProblem, match=r"kafka\.x9: unknown key.*; and 3 more$") as caught:
        load_effective(file, None, {})
    assert "kafka.x10" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        (["sasl_username=me"], "PLAINTEXT, so 1 setting has no effect: kafka.sasl_username"),
        (["sasl_password=p", "ssl_ca_file=/ca"],
         "PLAINTEXT, so 2 settings have no effect: kafka.sasl_password, kafka.ssl_ca_file"),
        (["security_protocol=SSL", "sasl_mechanism=PLAIN"], "SSL, so 1 setting has no effect: kafka.sasl_mechanism"),
        (["security_protocol=SSL", "ssl_ca_file=/ca"], None),
        (["sasl_username=null"], None),
    ],
)  # fmt: skip
def test_a_login_that_nobody_uses_is_a_warning(given: list[str], warning: str | None) -> None:
    arguments = [part for row in given for part in ("--set", f"kafka.{row}")]
    shown = CliRunner().invoke(config, [*arguments, "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)
    assert shown.stderr == (f"warning: kafka.security_protocol is {warning}\n" if warning else "")


def test_no_setting_takes_true_for_a_number() -> None:
    """YAML makes true of `on` and `yes`."""
    for key, default in flatten(Settings()).items():
        if isinstance(default, bool):
            continue
        try:
            value = flatten(load_effective(None, {key: True}, {}).settings)[key]
        except UsageProblem:
            continue
        assert value is True, f"{key} is {value}"


def test_a_mistyped_variable_is_refused() -> None:
    with pytest.raises(UsageProblem, match=r"serve\.prot: unknown key .environment REBALANCER_SERVE__PROT"):
        load_effective(None, None, {"REBALANCER_SERVE__PROT": "1"})


@pytest.mark.parametrize("key", ["CONTROL_MODE", "PLANNER_MOVEMENTS_MAX", "KAFKA_SASL_PASSWORD"])
def test_one_underscore_too_few_is_told(key: str) -> None:
    right = key.replace("_", "__", 1)
    with pytest.raises(UsageProblem, match=rf"REBALANCER_{key}: is no setting; did you mean REBALANCER_{right}\?"):
        load_effective(None, None, {f"REBALANCER_{key}": "apply"})


def test_what_others_set_is_nobodys() -> None:
    others = {"REBALANCER_SERVE_PORT": "tcp://10.0.0.1:9464", "REBALANCER_CONFIG": "x", "CONTROL_MODE": "apply"}
    assert load_effective(None, None, others).origins == {}


@pytest.mark.parametrize("text", ["null", ""])
def test_what_may_be_without_a_value_can_be_unset(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, "planner: {movements_max: 3}\nkafka: {sasl_username: me, cluster_name: c}")
    for environment, flags in (
        ({"REBALANCER_PLANNER__MOVEMENTS_MAX": text, "REBALANCER_KAFKA__SASL_USERNAME": text}, {}),
        ({}, {"planner.movements_max": text, "kafka.sasl_username": text}),
    ):
        settings = load_effective(file, flags, environment).settings
        assert (settings.planner.movements_max, settings.kafka.sasl_username) == (None, None)
    with pytest.raises(UsageProblem, match=r"serve\.port: input should be a valid integer"):
        load_effective(file, {"serve.port": text}, {})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("kafka.bootstrap_servers", "a:1,b:2", ["a:1", "b:2"]),
        ("kafka.bootstrap_servers", "[a:1, b:2]", ["a:1", "b:2"]),
        ("kafka.bootstrap_servers", "a:1", ["a:1"]),
        ("control.maintenance_windows", "", []),
        ("trigger.resources", "disk,bytes_in", ["disk", "bytes_in"]),
        ("kafka.cluster_name", "2024", "2024"),
        ("kafka.cluster_name", "null", "null"),
        ("kafka.cluster_name", '"x"', "x"),
        ("collect.groups_include", "[a-z]+", "[a-z]+"),
        ("control.staged_moves", "true", True),
        ("serve.port", "1234", 1234),
    ],
)
def test_flags_are_read_as_the_environment_is(key: str, text: str, value: object) -> None:
    assert flatten(load_effective(None, {key: text}, {}).settings)[key] == value
    variable = f"REBALANCER_{key.replace('.', '__').upper()}"
    if '"' not in text:
        assert flatten(load_effective(None, None, {variable: text}).settings)[key] == value


@pytest.mark.parametrize("secret", ["SASL_PASSWORD", "SASL_OAUTHBEARER_CLIENT_SECRET"])
def test_a_secret_is_never_shown(secret: str) -> None:
    settings = load_effective(None, None, {f"REBALANCER_KAFKA__{secret}": "hunter2"}).settings
    assert "hunter2" not in str(flatten(settings))
    assert "hunter2" not in repr(settings)


def test_the_address_of_a_webhook_is_never_shown() -> None:
    shown = [
        "--set",
        "notify.webhooks.ops.url=https://hooks.slack.com/hunter2",
        "--set",
        "notify.webhooks.b.url_file=/f",
    ]
    for form in ([], ["--json"]):
        result = CliRunner().invoke(config, [*shown, *form])
        assert "hunter2" not in result.output
        assert "**********" in result.output
        assert "/f" in result.output


def test_a_login_inside_a_url_is_never_shown() -> None:
    key, url = "collect.jmx_endpoints.1", "http://reader:hunter2@broker-1:9404/metrics"
    shown = CliRunner().invoke(config, ["--set", f"{key}={url}", "--json"])
    assert {"key": key, "value": "http://**********@broker-1:9404/metrics", "origin": "flag"} in json.loads(
        shown.output
    )
    with pytest.raises(UsageProblem) as error:
        load_effective(None, {key: url.replace("9404", "port")}, {})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("kafka: {sasl_oauthbearer_client_secret: 87654321}", "kafka.sasl_oauthbearer_client_secret"),
        ("kafka: {sasl_oauthbearer_client_secret: [87654321]}", "kafka.sasl_oauthbearer_client_secret"),
        ("kafka: [{sasl_password: 87654321}]", "kafka"),
        ("kafka: 'sasl_password: 87654321'", "kafka"),
        ("kafka: [sasl_password=87654321]", "kafka"),
        ("kafka: 87654321@a:1", "kafka"),
        ("notify: {webhooks: {ops: {url: hooks.slack.com/services/87654321}}}", "notify.webhooks.ops.url"),
        ("notify: {webhooks: {ops: https://hooks.slack.com/services/87654321}}", "notify.webhooks.ops"),
        ("notify: {webhooks: https://hooks.slack.com/services/87654321}", "notify.webhooks"),
    ],
)
def test_a_message_names_the_setting_and_not_its_secret(text: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem) as error:
        load_effective(write(tmp_path, text), None, {})
    assert str(error.value).startswith(f"{key}: ")
    assert "87654321" not in str(error.value)


def test_a_secret_is_taken_as_it_was_typed() -> None:
    for text in ("[hunter2]", "{hunter2}"):
        environment = {"REBALANCER_KAFKA__SASL_PASSWORD": text}
        flags = {"kafka.sasl_oauthbearer_client_secret": text}
        kafka = load_effective(None, flags, environment).settings.kafka
        assert kafka.sasl_password
        assert kafka.sasl_password.get_secret_value() == text
        assert kafka.sasl_oauthbearer_client_secret
        assert kafka.sasl_oauthbearer_client_secret.get_secret_value() == text


SECRET_ASSIGNMENTS = (
    "kafka.sasl_password=hunter2", "kafka.sasl_oauthbearer_client_secret=hunter2",
    "collect.prometheus_password=hunter2", "collect.prometheus_bearer_token=hunter2",
    "kafka={sasl_password: hunter2}", "collect.prometheus_url=http://reader:hunter2@prometheus:9090",
    "notify.webhooks.ops.url=https://hooks.slack.com/hunter2", "notify.webhooks={ops: {url: 'https://hunter2'}}",
)  # fmt: skip


@pytest.mark.parametrize("secret", SECRET_ASSIGNMENTS)
def test_a_hint_repeats_what_was_set_and_no_secret(secret: str) -> None:
    @click.command()
    @settings_options
    def hint(config_file: Path | None, assignments: tuple[str, ...]) -> None:
        click.echo(f"rebalancer abort{in_use()}")

    shown = ["kafka.cluster_name=c", "kafka.sasl_password_file=/etc/password"]
    options = [part for one in (shown[0], secret, shown[1]) for part in ("--set", one)]
    printed = CliRunner().invoke(hint, options).output
    assert printed == f"rebalancer abort --set {shown[0]} --set {shown[1]}\n"


def test_an_assignment_without_its_sign_is_not_shown_if_it_may_be_a_secret() -> None:
    refused = CliRunner().invoke(config, ["--set", "kafka.sasl_password:hunter2"])
    assert "is not KEY=VALUE" in refused.output
    assert "hunter2" not in refused.output


def test_the_reference_file_shows_every_setting_with_its_default() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert text == reference(), "run `python -m streaming.settings.reference > conf/reference.yaml`"
    shown_values = yaml.safe_load(text)
    assert flatten(Settings.model_validate(shown_values)) == flatten(Settings())
    shown = {f"{section}.{key}" for section, values in shown_values.items() for key in values}
    existing = {
        f"{section}.{key}"
        for section, field in Settings.model_fields.items()
        for key in field.annotation.model_fields  # type: ignore[union-attr]
    }
    assert shown == existing


def test_the_charts_schema_knows_every_setting_but_secrets() -> None:
    """A changed setting needs `PYTHONPATH=. python deploy/helm/chart.py`."""
    chart = runpy.run_path(str(REFERENCE.parents[1] / "deploy" / "helm" / "chart.py"))
    schema = chart["VALUES_SCHEMA"].read_text(encoding="utf-8")
    assert schema == chart["values_schema"](), "run `PYTHONPATH=. python deploy/helm/chart.py`"
    assert '"sasl_password_file"' in schema
    sections = [field.annotation for field in Settings.model_fields.values()]
    fields = [row for section in sections for row in section.model_fields.items()]  # type: ignore[union-attr]
    secrets = {name for name, field in fields if SecretStr in get_args(field.annotation)}
    assert {"sasl_password", "prometheus_bearer_token"} <= secrets
    assert not {f'"{name}"' for name in secrets} & set(re.findall(r'"\w+"', schema))
