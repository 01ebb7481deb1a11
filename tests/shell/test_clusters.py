"""Several clusters in one settings file: what holds for each of them, where it came from, and what is refused."""

import json
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
import structlog
from click.testing import CliRunner

from streaming import tables
from streaming.cli import run
from streaming.commands.config import config
from streaming.commands.options import (
    in_use,
    settings_from,
    settings_of_clusters,
    settings_options,
)
from streaming.commands.reloading import check_places
from streaming.config import Effective, load_clusters, load_effective
from streaming.control.policies import planner_policy
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.runtime.logs import configure_logging, mask_too
from streaming.settings import LogSettings
from streaming.settings.clusters import is_paused
from tests.serve.synthetic import NOW_MS, Synthetic

TWO = """
storage: {tables: /srv/tables, checkpoints: /srv/checkpoints}
kafka: {request_timeout_ms: 7000, security_protocol: SASL_SSL, sasl_mechanism: PLAIN}
trigger: {enter_ratio: 1.5}
control: {mode: propose}
clusters:
  east: {kafka: {bootstrap_servers: ["east:9092"], sasl_username: of-east}, control: {mode: apply}}
  eu-west:
    kafka: {bootstrap_servers: ["west:9092"], sasl_username: of-west}
    storage: {tables: /mnt/old/tables}
    trigger: {enter_ratio: 2.5}
"""
PLAIN = """
clusters:
  east: {kafka: {bootstrap_servers: ["east:9092"]}}
  west: {kafka: {bootstrap_servers: ["west:9092"]}}
"""


def loaded(
    folder: Path, text: str, flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, Effective]:
    return load_clusters(written(folder, text), flags, environment or {})


def written(folder: Path, text: str) -> Path:
    file = folder / "rebalancer.yaml"
    file.write_text(text)
    return file


def problems(folder: Path, text: str, *flags: tuple[str, str], **environment: str) -> str:
    with pytest.raises(UsageProblem) as refused:
        loaded(folder, text, dict(flags), environment)
    return str(refused.value)


def test_each_cluster_has_the_shared_settings_but_for_those_of_its_own(tmp_path: Path) -> None:
    clusters = loaded(tmp_path, TWO)
    assert [*clusters] == ["east", "eu-west"]
    east, west = (each.settings for each in clusters.values())
    assert (east.kafka.cluster_name, west.kafka.cluster_name) == ("east", "eu-west")
    assert (east.kafka.bootstrap_servers, west.kafka.sasl_username) == (["east:9092"], "of-west")
    assert {east.kafka.request_timeout_ms, west.kafka.request_timeout_ms} == {7000}
    assert (east.control.mode, west.control.mode) == ("apply", "propose")
    assert (east.trigger.enter_ratio, west.trigger.enter_ratio) == (1.5, 2.5)


def test_each_cluster_has_places_of_its_own(tmp_path: Path) -> None:
    east, west = (each.settings.storage for each in loaded(tmp_path, TWO, {"storage.tables": "/elsewhere"}).values())
    assert (east.tables, east.checkpoints) == ("/elsewhere/clusters/east", "/srv/checkpoints/clusters/east")
    assert (west.tables, west.checkpoints) == ("/mnt/old/tables", "/srv/checkpoints/clusters/eu-west")


def test_a_later_source_wins_over_an_earlier_one_and_in_one_source_the_cluster_wins(tmp_path: Path) -> None:
    environment = {"REBALANCER_TRIGGER__WINDOWS_OVER": "4", "REBALANCER_CLUSTERS__EU_WEST__TRIGGER__WINDOWS_OVER": "5"}
    clusters = loaded(tmp_path, TWO, {"control.mode": "observe", "clusters.east.planner.band": "0.3"}, environment)
    east, west = clusters["east"], clusters["eu-west"]
    assert (east.settings.control.mode, west.settings.control.mode) == ("observe", "observe")
    assert (east.settings.trigger.windows_over, west.settings.trigger.windows_over) == (4, 5)
    assert (east.settings.planner.band, west.settings.planner.band) == (0.3, 0.03)
    file = f"file {tmp_path / 'rebalancer.yaml'}"
    assert east.origin("kafka.sasl_username") == f"{file}, clusters.east"
    assert east.origin("trigger.enter_ratio") == file
    assert east.origin("kafka.cluster_name") == east.origin("storage.tables") == "clusters.east"
    assert east.origin("control.mode") == "flag"
    assert east.origin("planner.band") == "flag, clusters.east"
    assert west.origin("trigger.windows_over") == (
        "environment REBALANCER_CLUSTERS__EU_WEST__TRIGGER__WINDOWS_OVER, clusters.eu-west"
    )
    assert west.origin("lag.allowed_ms") == "default"


def test_a_cluster_alone_is_as_it_was(tmp_path: Path) -> None:
    (name,) = loaded(tmp_path, "kafka: {cluster_name: main}\nstorage: {tables: /srv/tables}\n")
    assert name == "main"
    settings = load_effective(written(tmp_path, "storage: {tables: /srv/tables}"), None, {}, "main").settings
    assert settings.storage.tables == "/srv/tables"


def test_a_cluster_without_sections_is_of_the_shared_settings_alone(tmp_path: Path) -> None:
    only = load_effective(written(tmp_path, "clusters:\n  main:\n"), None, {}).settings
    assert (only.kafka.cluster_name, only.storage.tables) == ("main", "data/tables/clusters/main")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clusters: 3", "clusters: must be a section of names, found 3"),
        ("clusters:", "clusters: names no cluster: name one, or remove the key"),  # as of a file that is half written
        ("clusters: {east: 3}", "clusters.east: must be a section with keys of its own"),
        ("clusters: {ea/st: {}}", "'ea/st' is no name of a cluster; allowed are letters"),
        ("clusters: {..: {}}", "'..' is no name of a cluster"),
        ("clusters: {a__b: {}}", "'a__b' is no name of a cluster"),
        (f"clusters: {{{'a' * 101}: {{}}}}", "at most 100 characters"),
        ("clusters: {a-b: {}, A_b: {}}", "'a-b' and 'A_b' differ in capitals or signs alone"),
        ("clusters: {" + ", ".join(f"c{number}: {{}}" for number in range(101)) + "}", "at most 100 clusters"),
        ("kafka: {cluster_name: x}\nclusters: {east: {}}", "kafka.cluster_name: remove it (file"),
        ("clusters: {east: {kafka: {cluster_name: x}}}", "clusters.east.kafka.cluster_name: remove it"),
        ("clusters: {east: {serve: {port: 1}}}", "clusters.east.serve: holds for all clusters, set it at the top"),
        ("clusters: {east: {sreve: {}}}", "clusters.east.sreve: unknown key"),
        ("clusters: {east: {storage: {readable_by: owner}}}", "clusters.east.storage.readable_by: holds for all"),
        ("clusters: {east: {kafka: 3}}", "kafka: must be a section"),
        ("clusters: {east: {storage: {tables: 3}}}", "storage.tables: input should be a valid string, found 3"),
        ("kafka: 3\nclusters: {east: {}}", "kafka: must be a section"),
        ("storage: 3\nclusters: {east: {}}", "storage: must be a section"),
        ("clusters: {east: {}, west: {}}", "east, west: kafka.bootstrap_servers is '127.0.0.1:9092' for each of them"),
        (PLAIN.replace("west:9092", "East:9092"), "kafka.bootstrap_servers is 'east:9092' for each of them"),
        (PLAIN + "kafka: {cluster_id: abc}", "clusters east, west: kafka.cluster_id is 'abc' for each of them"),
        (
            PLAIN.replace("}}", "}, storage: {tables: /t}}", 1).replace("]}}", "]}, storage: {tables: /t/}}"),
            "clusters east, west: storage.tables is '/t' for each of them",
        ),
        (PLAIN + "collect: {jmx_endpoints: {1: 'http://a-1:7071/metrics'}}", "jmx_endpoints"),
    ],
)  # fmt: skip
def test_what_can_not_be_is_refused_in_the_words_of_the_file(tmp_path: Path, text: str, words: str) -> None:
    assert words in problems(tmp_path, text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/srv/our tables", "file:///srv/our%20tables"),
        ("file:///srv/t%C3%A4glich", "file://localhost/srv/t\u00e4glich/"),
        ("/srv/100%25", "FILE:/srv/100%2525"),
        ("/srv/tables", "//srv/tables"),
        ("./data:tables", "data:tables/"),
        ("s3://bucket/tables", "s3a://bucket/tables/"),
    ],
)
def test_a_folder_in_two_spellings_is_one_folder(tmp_path: Path, one: str, other: str) -> None:
    text = PLAIN.replace("}}", f"}}, storage: {{checkpoints: {one!r}}}}}", 1)
    text = text.replace("]}}", f"]}}, storage: {{checkpoints: {other!r}}}}}")
    assert "clusters east, west: storage.checkpoints is " in problems(tmp_path, text)


def test_a_wrong_value_is_reported_once_and_names_its_cluster_where_it_is_of_one(tmp_path: Path) -> None:
    shared = problems(tmp_path, PLAIN + "trigger: {enter_ratio: much}")
    assert shared.count("trigger.enter_ratio") == 1
    assert not shared.startswith("cluster ")
    own = problems(tmp_path, PLAIN, ("clusters.east.trigger.enter_ratio", "much"))
    assert own.startswith("cluster east: trigger.enter_ratio: ")
    assert "(flag, clusters.east)" in own
    login = problems(tmp_path, TWO.replace("sasl_username: of-west", "sasl_username: null"))
    assert login.startswith("cluster eu-west: kafka: security_protocol SASL_SSL needs")


def test_only_the_file_names_clusters(tmp_path: Path) -> None:
    flag = problems(tmp_path, PLAIN, ("clusters.eats.control.mode", "apply"))
    assert flag == "clusters.eats: unknown cluster (flag); known are east, west"
    variable = "REBALANCER_CLUSTERS__EATS__CONTROL__MODE"
    assert problems(tmp_path, PLAIN, **{variable: "apply"}).endswith("known are east, west")
    assert problems(tmp_path, "", **{variable: "apply"}).endswith("the settings file names none")


def test_a_variable_of_a_cluster_with_single_underscores_is_refused(tmp_path: Path) -> None:
    said = problems(tmp_path, TWO, REBALANCER_CLUSTERS_EU_WEST_CONTROL_MODE="observe")
    assert "did you mean REBALANCER_CLUSTERS__EU_WEST__CONTROL__MODE?" in said
    assert loaded(tmp_path, TWO, environment={"REBALANCER_CLUSTERS_PORT": "tcp://10.0.0.1:80"})


def test_a_command_takes_the_cluster_that_is_named_or_the_only_one(tmp_path: Path) -> None:
    file = written(tmp_path, PLAIN)
    with pytest.raises(UsageProblem, match="choose one by --cluster; known are east, west"):
        load_effective(file, None, {})
    with pytest.raises(UsageProblem, match="--cluster: found 'north', the settings know east, west"):
        load_effective(file, None, {}, "north")
    assert load_effective(file, None, {}, "west").settings.kafka.bootstrap_servers == ["west:9092"]

    @click.command()
    @settings_options
    def hint(config_file: Path, assignments: tuple[str, ...]) -> None:
        settings = settings_from(config_file, assignments)
        click.echo(f"{settings.kafka.cluster_name} {settings_of_clusters(config_file)['west'].log.level}{in_use()}")

    printed = CliRunner().invoke(hint, ["--config", str(file), "--cluster", "west"]).output
    assert printed == f"west info --config {file} --cluster west\n"


def test_config_shows_what_holds_for_a_cluster_and_where_it_came_from(tmp_path: Path) -> None:
    file = written(tmp_path, TWO)
    shown = CliRunner().invoke(config, ["--config", str(file), "--cluster", "eu-west", "--changed"]).output
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line}
    assert rows["trigger.enter_ratio"] == ["2.5", "file", f"{file},", "clusters.eu-west"]
    assert rows["storage.checkpoints"] == ["/srv/checkpoints/clusters/eu-west", "clusters.eu-west"]
    assert "control.mode" in rows


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("}}", "}, collect: {prometheus_url: 'http://u:hunter2@p:port'}}", 1),
        "clusters: [{name: a, kafka: {sasl_password: hunter2}}]",
    ],
)
def test_secrets_of_a_cluster_are_not_shown_where_they_are_refused(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in problems(tmp_path, text)


def test_tables_of_a_deployment_of_one_cluster_are_given_to_a_cluster_or_refused(tmp_path: Path) -> None:
    tables.create_table(str(tmp_path / "tables"), "lease")
    storage = f"storage: {{tables: {tmp_path}/tables, checkpoints: {tmp_path}/checkpoints}}\n"
    forgotten = {name: each.settings for name, each in loaded(tmp_path, storage + PLAIN).items()}
    with pytest.raises(RefusedForSafety, match=r"holds tables of one cluster: name this cluster by clusters\.NAME"):
        check_places(forgotten)
    named = {"clusters.east.storage.tables": f"{tmp_path}/tables"}
    check_places({name: each.settings for name, each in loaded(tmp_path, storage + PLAIN, named).items()})


def test_log_lines_of_a_role_name_its_cluster_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings(format="json"), kafka_cluster="east")
    structlog.get_logger().info("said")
    structlog.get_logger().info("said_of_another", kafka_cluster="west")
    rows = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [row["kafka_cluster"] for row in rows] == ["east", "west"]


def test_secrets_of_a_cluster_that_comes_later_are_in_no_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings(format="json"), frozenset({"password-of-east"}))
    mask_too(frozenset({"password-of-west"}))
    structlog.get_logger().info("said", text="password-of-east, password-of-west, password-of-north")
    (row,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert row["text"] == "**********, **********, password-of-north"


def test_a_paused_cluster_is_one_by_its_own_key_or_by_that_of_all(tmp_path: Path) -> None:
    def paused(text: str, flags: Mapping[str, object] | None = None, **environment: str) -> list[str]:
        clusters = loaded(tmp_path, text, flags, environment)
        return [name for name, each in clusters.items() if is_paused(each.settings)]

    own = PLAIN.replace('"east:9092"]}', '"east:9092"]}, paused: true')
    assert paused(PLAIN) == []
    assert paused(own) == ["east"]
    assert paused("paused: true\n" + own.replace('"west:9092"]}', '"west:9092"]}, paused: false')) == ["east"]
    assert paused(PLAIN, {"clusters.west.paused": "true"}) == ["west"]
    assert paused(own, REBALANCER_CLUSTERS__EAST__PAUSED="false") == []
    assert "paused: unknown key" in problems(tmp_path, "paused: true"), "who has one cluster stops the service"


@pytest.mark.long
def test_a_query_reads_the_tables_of_all_clusters_or_of_the_one_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, f"storage: {{tables: {tmp_path}/tables}}\n{PLAIN}")
    for number, name in enumerate(("east", "west"), start=1):
        row = {"kafka_cluster": name, "sequence": 1, "owner": "o", "renewed_at": tables.utc(number)}
        row |= {"ttl_ms": 1, "released": False}
        tables.append(
            str(tmp_path / "tables" / "clusters" / name), "lease", [row], transaction_id="t", transaction_version=1
        )
    query = "SELECT kafka_cluster, epoch_ms(renewed_at) AS ms FROM lease ORDER BY ALL"
    assert run(["sql", query, "--json", "--config", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"kafka_cluster": "east", "ms": 1},
        {"kafka_cluster": "west", "ms": 2},
    ]
    assert run(["sql", query, "--json", "--config", str(file), "--cluster", "west"]) == 0
    assert [row["kafka_cluster"] for row in json.loads(capsys.readouterr().out)] == ["west"]


@pytest.mark.long
def test_a_query_names_the_clusters_of_which_a_table_has_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new cluster, or one whose folder is not mounted, has no tables, and would be missing from a sum unnoticed."""
    file = written(tmp_path, f"storage: {{tables: {tmp_path}/tables}}\n{PLAIN}")
    made = Synthetic(str(tmp_path / "tables" / "clusters" / "east"), "east")
    made.batch_row(NOW_MS)
    made.movements(NOW_MS, [("t", 0, [1], [2])], "p")
    query = ["sql", "SELECT count(*) AS n FROM pipeline_batch", "--json", "--config", str(file)]
    assert run(query) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == [{"n": 1}]
    assert "sql: pipeline_batch has no rows of west: nothing has been written there yet" in shown.err
    assert "movement" not in shown.err
    assert run([*query, "--cluster", "east"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["sql", "FROM roll", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert "Table with name roll does not exist in" in error
    assert f"{tmp_path}/tables/clusters/east or {tmp_path}/tables/clusters/west" in error


@pytest.mark.long
def test_rows_that_do_not_name_their_cluster_get_the_name_of_their_folders_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capacities = "planner: {capacities: {7: {bytes_in_per_sec: 5.0}}}\n"
    file = written(tmp_path, f"storage: {{tables: {tmp_path}/tables}}\n{capacities}{PLAIN}")
    for name in ("east", "west"):
        made = Synthetic(str(tmp_path / "tables" / "clusters" / name), name)
        made.movements(NOW_MS, [("t", 0, [1], [2])], "p")
        made.batch_row(NOW_MS)
        made.rejected(NOW_MS, ["not_json"])
    for query in ("FROM movement", "FROM pipeline_batch", "FROM rejected_record", "FROM broker_capacity"):
        asked = f"SELECT kafka_cluster AS c {query} ORDER BY c"
        for options, seen in (([], ["east", "west"]), (["--cluster", "west"], ["west"])):
            assert run(["sql", asked, "--json", "--config", str(file), *options]) == 0
            assert [row["c"] for row in json.loads(capsys.readouterr().out)] == seen
    folder = str(tmp_path / "tables" / "clusters" / "west")
    assert run(["sql", "SELECT kafka_cluster FROM movement", "--json", "--tables-dir", folder]) == 0
    assert json.loads(capsys.readouterr().out) == [{"kafka_cluster": None}]


TWO_FILLED = (
    "clusters: {a: {kafka: {bootstrap_servers: ['a:1']}, %s}, b: {kafka: {bootstrap_servers: ['b:1']}, %s}}\n%s"
)


def test_patterns_of_a_cluster_count_before_shared_ones(tmp_path: Path) -> None:
    own = "planner: {broker_sets: {'^orders': {brokers: [7, 8]}}}"
    shared = "planner: {broker_sets: {'.*': {brokers: [1]}}}"
    planner = loaded(tmp_path, TWO_FILLED % (own, "lag: {}", shared))["a"].settings.planner
    assert [one.brokers for one in planner_policy(planner, ["orders"]).broker_sets if one.topics] == [{7, 8}]


def test_one_folder_is_one_folder_however_it_is_spelled(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"storage\.tables"):
        loaded(tmp_path, TWO_FILLED % ("storage: {tables: /t}", "storage: {tables: /t/./}", ""))
    tables.create_table(str(tmp_path), "lease")
    text = TWO_FILLED % (f"storage: {{tables: '{tmp_path}/'}}", "lag: {}", f"storage: {{tables: '{tmp_path}'}}")
    check_places({name: one.settings for name, one in loaded(tmp_path, text).items()})


def test_a_flag_names_a_cluster_with_a_point(tmp_path: Path) -> None:
    text = "clusters: {eu.west-1: {kafka: {bootstrap_servers: ['a:1']}}, b: {kafka: {bootstrap_servers: ['b:1']}}}"
    found = loaded(tmp_path, text, {"clusters.eu.west-1.control.mode": "observe"})
    assert found["eu.west-1"].settings.control.mode == "observe"
