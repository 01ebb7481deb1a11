"""What people want of brokers, written by machines whose clocks differ."""

from pathlib import Path

import pytest

from streaming import tables
from streaming.control import intents
from streaming.control.intents import TABLE, note_intent
from streaming.errors import TableUnavailable
from streaming.settings import Settings
from streaming.tables import Row
from streaming.views.intents import Intent, drained_brokers, newest_intents

NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"storage": {"tables": str(tmp_path / "tables")}})


def times_ms(settings: Settings) -> list[int]:
    return sorted(tables.to_ms(row["event_time"]) for row in tables.read(settings.storage.tables, TABLE))


@pytest.mark.parametrize("lag_ms", [0, 1, HOUR_MS])
def test_a_clock_that_is_behind_takes_back_what_another_has_written(settings: Settings, lag_ms: int) -> None:
    note_intent(settings, 4, Intent.DRAIN, now_ms=NOW_MS)
    note_intent(settings, 4, Intent.USE, now_ms=NOW_MS - lag_ms)
    assert drained_brokers(settings) == frozenset()
    note_intent(settings, 4, Intent.DRAIN, now_ms=NOW_MS - lag_ms)
    assert drained_brokers(settings) == {4}
    assert times_ms(settings) == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_brokers_don_t_wait_for_each_other(settings: Settings) -> None:
    note_intent(settings, 4, Intent.DRAIN, now_ms=NOW_MS)
    note_intent(settings, 5, Intent.DRAIN, now_ms=NOW_MS - HOUR_MS)
    assert drained_brokers(settings) == {4, 5}
    assert times_ms(settings) == [NOW_MS - HOUR_MS, NOW_MS]


def test_who_comes_second_at_the_same_time_writes_after_the_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the same rows before either has written."""
    looks = 0

    def look(asked: Settings) -> dict[int, Row]:
        nonlocal looks
        looks += 1
        before = newest_intents(asked)
        if looks == 1:
            monkeypatch.setattr(intents, "newest_intents", newest_intents)
            note_intent(asked, 4, Intent.USE, now_ms=NOW_MS)
            monkeypatch.setattr(intents, "newest_intents", look)
        return before

    monkeypatch.setattr(intents, "newest_intents", look)
    note_intent(settings, 4, Intent.DRAIN, now_ms=NOW_MS)
    assert drained_brokers(settings) == {4}
    assert times_ms(settings) == [NOW_MS, NOW_MS + 1]


def test_what_is_not_kept_is_not_called_noted(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "append", lambda *_, **__: False)
    with pytest.raises(TableUnavailable, match="broker 4 is not noted for drain"):
        note_intent(settings, 4, Intent.DRAIN, now_ms=NOW_MS)
