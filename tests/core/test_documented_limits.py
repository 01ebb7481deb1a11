"""Limits of the core that no setting changes are those that the documentation names."""

from pathlib import Path

import pytest

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.execution.accounting import TRIES_MAX
from assignor_core.execution.adaptive_rates import ADAPT_INTERVAL_MS
from assignor_core.execution.caution import GAIN_KEPT_MIN, HEADROOM_SHARE, THROTTLE_BACK_OFF, THROTTLE_RECOVERY
from assignor_core.execution.progress import MISSING_SNAPSHOTS_MIN
from assignor_core.execution.room import PATIENCE_MS
from assignor_core.live_plans.planning import UNKNOWN_SHARE_MAX

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "phrase", "limit", "value"),
    [
        ("execution", "ten snapshots in a row must miss it", MISSING_SNAPSHOTS_MIN, 10),
        ("execution", "for good, or 60 times", TRIES_MAX, 60),
        ("execution", "has not fitted for 10 min, control skips it", PATIENCE_MS, 600_000),
        ("execution", "halves the rate every 10 s", ADAPT_INTERVAL_MS, 10_000),
        ("execution", "halves the rate", THROTTLE_BACK_OFF, 0.5),
        ("execution", "raises the rate by a quarter at a time", THROTTLE_RECOVERY, 1.25),
        ("execution", "four fifths of what its capacity", HEADROOM_SHARE, 0.8),
        ("execution", "less than half of their promise", GAIN_KEPT_MIN, 0.5),
        ("trigger", "lowers max/mean by at least 0.01", DecisionPolicy().gain_min, 0.01),
        ("trigger", "by four times their noise", DecisionPolicy().gain_over_noise_min, 4),
        ("trigger", "more than 10 % of the partitions are unknown", UNKNOWN_SHARE_MAX, 0.10),
    ],
)
def test_a_limit_is_as_documented(page: str, phrase: str, limit: float, value: float) -> None:
    assert phrase in " ".join((DOCS / f"{page}.md").read_text().split())
    assert limit == value
