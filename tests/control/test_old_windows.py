"""Plans that a person asks for rest on windows that the trigger would accept, unless the person wants old ones."""

import pytest

from assignor_core.errors import NothingToPlanOn
from assignor_core.proposed_plan import ProposedPlan
from streaming.control.planning import propose_live
from streaming.control.wiring import decider_of, journal_of, window_tables_of
from streaming.settings import Settings
from tests.control.test_deciding import NOON_MS, WINDOW_MS, DescribedCluster, settings, skewed
from tests.control.windows import write_windows

__all__ = ["settings"]  # the fixture

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def planned(settings: Settings, cluster: DescribedCluster, now_ms: int, *, forced: bool = False) -> ProposedPlan:
    return propose_live(
        cluster, cluster.live, window_tables_of(settings), settings.planner, now_ms=now_ms, on_old_windows=forced
    )


def test_a_plan_on_old_windows_is_refused_with_their_age_unless_they_are_wanted(settings: Settings) -> None:
    cluster = skewed()
    with pytest.raises(NothingToPlanOn, match="no closed window in the tables yet"):
        planned(settings, cluster, NOON_MS)
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    fresh = planned(settings, cluster, NOON_MS + MINUTE_MS).plan
    assert fresh.movement_count
    for age, shown in ((8 * MINUTE_MS, "8 min"), (3 * HOUR_MS, "3.0 h"), (72 * HOUR_MS, "3.0 d")):
        with pytest.raises(NothingToPlanOn, match=f"the newest window ended {shown} ago, .* none older than 110 s"):
            planned(settings, cluster, NOON_MS + age)
        assert planned(settings, cluster, NOON_MS + age, forced=True).plan == fresh


def test_control_that_starts_again_judges_no_window_twice(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each decision that is logged has its row, and the row of a window is never replaced."""
    cluster, journal = skewed(), journal_of(settings)
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    decider_of(cluster, journal, settings).tick(now_ms=NOON_MS)
    before = journal.last_decision()
    assert before is not None
    capfd.readouterr()
    again = decider_of(cluster, journal, settings)
    assert again.tick(now_ms=NOON_MS + 1_000) is None
    assert journal.last_decision() == before
    assert "decision" not in "".join(capfd.readouterr())
    write_windows(settings, cluster.live, end_ms=NOON_MS + WINDOW_MS)
    again.tick(now_ms=NOON_MS + WINDOW_MS)
    after = journal.last_decision()
    assert after is not None
    assert after["window_end"] > before["window_end"]
