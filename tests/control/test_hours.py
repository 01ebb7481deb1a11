"""Plans on the worst hour: topics of the day and of the night, hours in tables, and what is read of them."""

from collections.abc import Mapping

import pytest

from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.live_plans.measured_loads import NO_HOURS
from assignor_core.plan import Plan
from assignor_core.proposed_plan import ProposedPlan
from streaming.control import planning
from streaming.control.planning import hourly_rates, propose_live
from streaming.control.wiring import window_tables_of
from streaming.settings import Settings
from tests.control.test_deciding import NOON_MS, DescribedCluster
from tests.control.windows import write_hours_before, write_windows

PARTITIONS, RATE = 48, 1e6
DAY_HOURS, NIGHT_HOURS = range(8, 20), (*range(8), *range(20, 24))


def cluster() -> DescribedCluster:
    """Topic day lies on brokers 1 and 2 for the most part, night on 3 and 4: all four carry the same over 24 hours."""
    partitions = {}
    for topic, brokers in (("day", (1, 1, 1, 2, 2, 3, 3, 4)), ("night", (3, 3, 3, 4, 4, 4, 1, 2))):
        for number in range(PARTITIONS):
            broker = brokers[number % len(brokers)]
            partitions[topic, number] = LivePartition((broker,), broker, (broker,))
    return DescribedCluster(LiveCluster("c", dict.fromkeys((1, 2, 3, 4)), partitions))


def rates(hour: int) -> dict[PartitionKey, float]:
    """By day topic day takes ten times what the other takes, by night it is the other way round; none two alike."""
    busy = "day" if hour in DAY_HOURS else "night"
    return {
        (topic, number): RATE * (1 + number / PARTITIONS) * (1.0 if topic == busy else 0.1)
        for topic in ("day", "night")
        for number in range(PARTITIONS)
    }


def write_hours(settings: Settings, by_hour: Mapping[int, Mapping[PartitionKey, float | None]]) -> None:
    """Rows of hours that began so many hours before noon."""
    write_hours_before(settings, NOON_MS, by_hour)


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return Settings.model_validate(
        {"storage": {"tables": tables_in_memory}, "pipeline": {"window_ms": 10_000, "watermark_ms": 1_000}}
    )


def proposed(settings: Settings, described: DescribedCluster) -> ProposedPlan:
    write_windows(settings, described.live, end_ms=NOON_MS, rates=rates(12))
    return propose_live(described, described.live, window_tables_of(settings), settings.planner, now_ms=NOON_MS)


def max_over_mean(plan: Plan, live: LiveCluster, hour: int) -> float:
    """Bytes in of the brokers in this hour once the plan is done."""
    placed = {key: row.replicas for key, row in live.partitions.items()}
    placed |= {movement.key: movement.new_replicas for movement in plan.movements}
    loads = dict.fromkeys(live.broker_racks, 0.0)
    for key, rate in rates(hour).items():
        loads[placed[key][0]] += rate
    return max(loads.values()) / (sum(loads.values()) / len(loads))


def test_the_worst_hour_of_a_plan_on_all_hours_is_even_where_one_on_the_windows_leaves_the_night(
    settings: Settings,
) -> None:
    described = cluster()
    write_hours(settings, {before: rates((12 - before) % 24) for before in range(1, 49)})
    plan = proposed(settings, described).plan
    assert max(max_over_mean(plan, described.live, hour) for hour in range(24)) <= 1.05
    alone = settings.model_copy(update={"planner": settings.planner.model_copy(update={"days": 0})})
    by_day = proposed(alone, described).plan
    assert max_over_mean(by_day, described.live, 12) <= 1.05
    assert max_over_mean(by_day, described.live, 0) >= 1.1


def test_what_the_plan_promises_is_what_is_measured_next_and_the_worst_hour_stands_beside_it(
    settings: Settings,
) -> None:
    described = cluster()
    write_hours(settings, {before: rates((12 - before) % 24) for before in range(1, 25)})
    made = proposed(settings, described)
    now = max_over_mean(Plan("c", ()), described.live, 12)
    assert made.plan.skew_before["bytes_in"]["max_over_mean"] == pytest.approx(now)
    assert made.plan.skew_after["bytes_in"]["max_over_mean"] == pytest.approx(
        max_over_mean(made.plan, described.live, 12)
    )
    assert made.plan.lower_bound["bytes_in"] <= made.plan.skew_after["bytes_in"]["max_over_mean"] + 1e-9
    assert made.worst_hour is not None
    worst = max(max_over_mean(made.plan, described.live, hour) for hour in range(24))
    assert made.worst_hour["after"]["bytes_in"]["max_over_mean"] == pytest.approx(worst)
    assert ProposedPlan.from_json(made.to_json()).worst_hour == made.worst_hour
    line = "planned on the newest windows and on 24 parts of the day (UTC), means of the last 7 days"
    assert line in made.plan.diagnosis


def test_without_hours_a_plan_rests_on_the_windows_alone(settings: Settings) -> None:
    made = proposed(settings, cluster())
    assert made.worst_hour is None
    assert "worst_hour" not in made.to_json()


def test_hours_are_means_over_the_days_of_what_is_known(settings: Settings) -> None:
    key, gone = ("t", 0), ("t", 9)
    write_hours(settings, {1: {key: 2.0, gone: 5.0}, 2: {key: None}, 25: {key: 6.0}, 24 * 9 + 1: {key: 99.0}})
    found = hourly_rates(settings.storage.tables, "main", [key], days=7, now_ms=NOON_MS)
    assert (found.hours, found.days) == ((10, 11), 7), "bytes out of ten o'clock are known"
    assert found.rates[0, 1, 0] == 4.0
    (known,) = hourly_rates(settings.storage.tables, "main", [key], days=1, now_ms=NOON_MS).rates[:, 1, 0]
    assert known == 2.0
    assert hourly_rates(settings.storage.tables, "other", [key], days=7, now_ms=NOON_MS).hours == ()


def test_fewer_days_are_read_of_a_large_cluster_and_none_of_a_huge_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ("t", 0)
    write_hours(settings, {1: {key: 2.0}, 25: {key: 6.0}})
    monkeypatch.setattr(planning, "HOURLY_ROWS_MAX", 30)
    found = hourly_rates(settings.storage.tables, "main", [key], days=7, now_ms=NOON_MS)
    assert (found.days, found.rates[0, 0, 0]) == (1, 2.0)
    assert hourly_rates(settings.storage.tables, "main", [key, ("t", 1)], days=7, now_ms=NOON_MS) is NO_HOURS
