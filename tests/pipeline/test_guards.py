"""Starts that would be wrong are refused, with what was found and the way out; a sound one goes on."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streaming import tables
from streaming.contract import BROKER_LOAD, PARTITION_LOAD
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.pipeline.checkpoints import FINGERPRINT, MADE_WITH, STATE_PARTITIONS
from streaming.pipeline.delta_tables import WindowTable, create_window_table
from streaming.pipeline.guards import (
    STILL_MADE,
    WINDOWS_VERSION,
    DescribesTopics,
    check_fingerprint,
    check_tables_are_there,
    check_tables_fit_checkpoints,
    check_topic_ids,
    check_window_lengths,
    fingerprint,
    only_pipeline,
    topic_ids,
    transaction_id,
)
from streaming.settings import Settings, StorageSettings
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic
from tests.waiting import until

IDS = {"rebalancer.byte-rate": "a", "rebalancer.consumer-lag": "b"}


def own(tmp_path: Path, **pipeline: Any) -> Settings:
    return Settings.model_validate({"storage": {"checkpoints": str(tmp_path / "checkpoints")}, "pipeline": pipeline})


def of_folder(tmp_path: Path) -> Settings:
    """Settings whose tables are in the folder, too."""
    storage = {"checkpoints": str(tmp_path / "checkpoints"), "tables": str(tmp_path / "tables")}
    return Settings.model_validate({"storage": storage})


def check(settings: Settings, ids: dict[str, str]) -> int:
    return check_fingerprint(settings.storage.checkpoints, fingerprint(settings.topics, settings.pipeline), ids)


def test_the_same_settings_and_topics_go_on(tmp_path: Path) -> None:
    check(own(tmp_path), IDS)
    check(own(tmp_path, watermark_ms=5_000), IDS)  # Spark takes another delay from then on


def test_what_the_state_depends_on_may_not_change(tmp_path: Path) -> None:
    check(own(tmp_path), IDS)
    with pytest.raises(RefusedForSafety, match=r"pipeline\.window_ms is 10000.*storage\.checkpoints"):
        check(own(tmp_path, window_ms=10_000), IDS)


@pytest.mark.parametrize("version", sorted(STILL_MADE))
def test_an_earlier_version_of_the_windows_goes_on_as_it_was(tmp_path: Path, version: int) -> None:
    settings = own(tmp_path)
    assert check(settings, IDS) == WINDOWS_VERSION
    file = Path(settings.storage.checkpoints) / "fingerprint.json"
    noted = json.loads(file.read_text())
    noted["made_with"]["windows_version"] = version
    file.write_text(json.dumps(noted))
    assert check(settings, IDS) == version == check(settings, IDS)


@pytest.mark.parametrize("version", [min(STILL_MADE) - 1, WINDOWS_VERSION + 1])
def test_another_version_of_the_windows_is_refused(tmp_path: Path, version: int) -> None:
    settings = own(tmp_path)
    check(settings, IDS)
    file = Path(settings.storage.checkpoints) / "fingerprint.json"
    file.write_text(file.read_text().replace(f'"windows_version": {WINDOWS_VERSION}', f'"windows_version": {version}'))
    with pytest.raises(RefusedForSafety, match=f"windows_version is {WINDOWS_VERSION}, .* were made with {version}"):
        check(settings, IDS)


def test_another_number_of_state_partitions_is_not_refused(tmp_path: Path) -> None:
    """An earlier version has noted the number at its first start."""
    settings = own(tmp_path)
    check(settings, IDS)
    file = Path(settings.storage.checkpoints) / FINGERPRINT
    content = json.loads(file.read_text())
    content[MADE_WITH][STATE_PARTITIONS] = 2
    file.write_text(json.dumps(content))
    check(own(tmp_path, shuffle_partitions=7), IDS)


def test_a_topic_made_again_is_named_with_what_had_been_read(tmp_path: Path) -> None:
    settings = own(tmp_path)
    check(settings, IDS)
    offsets = Path(settings.storage.checkpoints) / "byte_rate" / "offsets"
    offsets.mkdir(parents=True)
    for batch, offset in ((9, 5), (10, 42)):
        (offsets / str(batch)).write_text("v1\n{}\n" + json.dumps({"rebalancer.byte-rate": {"0": offset}}))
    again = IDS | {"rebalancer.byte-rate": "c"}
    with pytest.raises(RefusedForSafety, match=r"deleted and made again.*partition 0 up to offset 42"):
        check_topic_ids(settings.storage.checkpoints, again)
    with pytest.raises(RefusedForSafety, match=r"up to offset 7 \(up to 42 since, perhaps of the new one\)"):
        check_topic_ids(settings.storage.checkpoints, again, {("rebalancer.byte-rate", "0"): 7})
    with pytest.raises(RefusedForSafety, match="deleted and made again"):
        check(settings, again)


def test_an_id_that_was_not_known_at_the_first_start_is_noted_at_the_next(tmp_path: Path) -> None:
    settings = own(tmp_path)
    check(settings, {"rebalancer.byte-rate": "a"})
    check(settings, IDS)
    with pytest.raises(RefusedForSafety, match=r"consumer-lag was deleted and made again \(id b, now c\)"):
        check(settings, IDS | {"rebalancer.consumer-lag": "c"})


def test_a_window_length_that_changed_asks_for_new_tables_too(tmp_path: Path) -> None:
    check(own(tmp_path), IDS)
    with pytest.raises(RefusedForSafety, match=r"storage\.checkpoints and storage\.tables both"):
        check(own(tmp_path, window_ms=10_000), IDS)


@pytest.mark.parametrize("table", ["broker_load", "partition_load", "group_lag"])
def test_windows_of_another_length_are_not_put_beside_those_of_a_table(tmp_path: Path, table: str) -> None:
    """As with the way out taken by half: new checkpoints and the old tables."""
    made = Synthetic(str(tmp_path))
    for start_ms in (NOW_MS, NOW_MS + WINDOW_MS):
        if table == "broker_load":
            made.broker_load(start_ms, {1: 1.0})
        elif table == "partition_load":
            made.partition_load(start_ms, [(1, "t", 0, "leader", 1.0)])
        else:
            made.group_lag(start_ms, [("g", "t", 0, 1, 2)])
    check_window_lengths(str(tmp_path), window_ms=WINDOW_MS)
    with pytest.raises(RefusedForSafety, match=rf"{table} .* is {WINDOW_MS} ms long.*storage\.tables both"):
        check_window_lengths(str(tmp_path), window_ms=2 * WINDOW_MS)


def test_tables_that_are_not_there_or_empty_take_windows_of_any_length(tmp_path: Path) -> None:
    check_window_lengths(str(tmp_path), window_ms=WINDOW_MS)
    tables.create_table(str(tmp_path), "broker_load")
    check_window_lengths(str(tmp_path), window_ms=WINDOW_MS)


@pytest.mark.parametrize(
    ("query", "needed"), [("byte_rate", ("partition_load", "broker_load")), ("consumer_lag", ("group_lag",))]
)
def test_checkpoints_do_not_go_on_without_the_tables_they_have_read_for(
    tmp_path: Path, query: str, needed: tuple[str, ...]
) -> None:
    """A disk that isn't mounted: new tables would hide the ones that are there, and begin in the middle."""
    storage = StorageSettings(checkpoints=str(tmp_path / "checkpoints"), tables=str(tmp_path / "tables"))
    check_tables_are_there(storage)  # a first start
    offsets = tmp_path / "checkpoints" / query / "offsets"
    offsets.mkdir(parents=True)
    check_tables_are_there(storage)  # one that was killed before it read anything
    (offsets / "0").write_text("v1\n{}\n" + json.dumps({"t": {"0": 7}}))
    for name in needed:
        with pytest.raises(RefusedForSafety, match=rf"{name} is not in .*mounted.*storage\.checkpoints"):
            check_tables_are_there(storage)
        tables.create_table(str(tmp_path / "tables"), name)
    check_tables_are_there(storage)


def batches(settings: Settings, *, planned: int, finished: int, written: dict[str, int]) -> None:
    """Make a checkpoint of the query `byte_rate` with these newest batches, and tables that hold these ones."""
    query = Path(settings.storage.checkpoints) / "byte_rate"
    for log_name, newest in (("offsets", planned), ("commits", finished)):
        (query / log_name).mkdir(parents=True)
        for batch in range(newest + 1):
            (query / log_name / str(batch)).write_text("v1\n{}\n" + json.dumps({"t": {"0": 7 * batch + 7}}))
    (query / "metadata").write_text('{"id": "q"}')
    for table in (PARTITION_LOAD, BROKER_LOAD):
        create_window_table(settings.storage.tables, table)
        writer = WindowTable(tables.table_uri(settings.storage.tables, table.name), table, rows_max=9)
        for batch in range(written[table.name] + 1):
            writer.note((transaction_id("q", table), batch))


def fit(settings: Settings) -> None:
    check(settings, IDS)
    check_tables_fit_checkpoints(settings.storage)


@pytest.mark.long
@pytest.mark.parametrize(("planned", "finished"), [(5, 5), (5, 4), (6, 5)])
def test_a_checkpoint_goes_on_with_tables_of_its_time_wherever_it_was_killed(
    tmp_path: Path, planned: int, finished: int
) -> None:
    settings = of_folder(tmp_path)
    fit(settings)  # a first start
    batches(settings, planned=planned, finished=finished, written={"partition_load": 5, "broker_load": 5})
    fit(settings)


@pytest.mark.long
@pytest.mark.parametrize("ahead", ["partition_load", "broker_load"])
def test_a_checkpoint_restored_from_a_copy_is_refused_beside_newer_tables(tmp_path: Path, ahead: str) -> None:
    """Its next batches would have ids that the tables take for written, and be skipped without a word."""
    settings = of_folder(tmp_path)
    fit(settings)
    batches(settings, planned=2, finished=2, written={"partition_load": 2, "broker_load": 2} | {ahead: 5})
    with pytest.raises(RefusedForSafety, match=rf"{ahead} .*batch 5.*up to 2.*storage\.checkpoints"):
        fit(settings)


@pytest.mark.parametrize(("back", "to"), [("partition_load", 2), ("broker_load", 4), ("broker_load", -1)])
def test_tables_that_were_rolled_back_are_refused_beside_a_newer_checkpoint(tmp_path: Path, back: str, to: int) -> None:
    settings = of_folder(tmp_path)
    fit(settings)
    batches(settings, planned=5, finished=5, written={"partition_load": 5, "broker_load": 5} | {back: to})
    with pytest.raises(RefusedForSafety, match=rf"{back} .*up to {to}.*finished 5.*storage\.checkpoints"):
        fit(settings)


def test_a_checkpoint_of_an_earlier_version_notes_its_batches_from_the_next_one_on(tmp_path: Path) -> None:
    """Batches without rows for a table left nothing in it, so an older table is no sign of a loss there."""
    settings = of_folder(tmp_path)
    batches(settings, planned=5, finished=5, written={"partition_load": 5, "broker_load": 3})
    fit(settings)
    fit(settings)
    for log_name in ("offsets", "commits"):
        (Path(settings.storage.checkpoints) / "byte_rate" / log_name / "6").write_text("v1\n{}\n{}")
    with pytest.raises(RefusedForSafety, match=r"up to 5.*finished 6"):
        fit(settings)


def test_a_query_that_begins_anew_goes_on_with_the_tables_of_the_one_before(tmp_path: Path) -> None:
    settings = of_folder(tmp_path)
    fit(settings)
    batches(settings, planned=5, finished=5, written={"partition_load": 5, "broker_load": 5})
    shutil.rmtree(Path(settings.storage.checkpoints) / "byte_rate")
    fit(settings)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    settings = own(tmp_path)
    check(settings, IDS)
    (Path(settings.storage.checkpoints) / FINGERPRINT).write_text('{"made_with"')
    with pytest.raises(UsageProblem, match=FINGERPRINT):
        check(settings, IDS)


def test_a_second_pipeline_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    folder = own(tmp_path).storage.checkpoints
    with only_pipeline(folder), pytest.raises(RefusedForSafety, match="another pipeline"), only_pipeline(folder):
        pass
    with only_pipeline(folder):
        pass


def test_a_folder_named_by_a_uri_is_the_same_folder(tmp_path: Path) -> None:
    plain = own(tmp_path)
    storage = plain.storage.model_copy(update={"checkpoints": f"file://{plain.storage.checkpoints}"})
    by_uri = plain.model_copy(update={"storage": storage})
    check(by_uri, IDS)
    for first, second in ((plain.storage.checkpoints, storage.checkpoints), (storage.checkpoints,) * 2):
        with only_pipeline(first), pytest.raises(RefusedForSafety, match="another pipeline"), only_pipeline(second):
            pass
    for settings in (plain, by_uri):
        with pytest.raises(RefusedForSafety, match="deleted and made again"):
            check(settings, IDS | {"rebalancer.byte-rate": "c"})


@pytest.mark.kafka
def test_kafka_gives_a_topic_made_again_another_id(settings: Settings) -> None:
    from streaming.cluster.clients import admin_client

    names = ("made-again", "never-made")  # other tests on these brokers make topics of the default names
    admin = admin_client(settings.kafka)
    try:
        old: str | None = None
        for _ in range(2):
            admin.create_topics({names[0]: {"num_partitions": 1, "replication_factor": 1}})
            # Any broker may be asked, and brokers hear of topics one after the other.
            old = until("it has an id of its own", partial(another_id, admin, names, old))
            admin.delete_topics([names[0]])
            until("it is gone", lambda: names[0] not in admin.list_topics())
    finally:
        admin.close()


def another_id(admin: DescribesTopics, names: tuple[str, str], old: str | None) -> str | None:
    """The id of the first topic, unless it is the old one; the other topic is not there."""
    shown = topic_ids(admin, names)
    assert shown.keys() <= {names[0]}
    new = shown.get(names[0])
    return None if new == old else new
