"""The table of docs/lag.md, Burrow's verdicts beside ours: every row is played through both."""

from collections.abc import Callable
from pathlib import Path

import pytest

from assignor_core.lag import BurrowWindow, Commit, LagStatus, burrow_status
from tests.core.lag.cases import Story, judge

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lag.md"
RATE, RING = 50, 10
NOW_S = 1_815


def end(second: int) -> int:
    return RATE * second


def every(step_s: int, until_s: int = 10**9) -> Callable[[int], int]:
    """Is a second behind when it commits, every so many seconds, and nothing after `until_s`."""
    return lambda second: max(0, end(min(second, until_s) // step_s * step_s - 1))


def dipping(second: int) -> int:
    """Reads 7 of 10; for one good moment among the newest commits a little more."""
    moment = NOW_S - 5
    return max(int(0.7 * end(second)), int(0.7 * end(moment)) + 100 if second >= moment else 0)


def begun(second: int) -> int | None:
    return end(NOW_S - 6) if second >= NOW_S - 5 else None


def back(second: int) -> int:
    step = second // 30 * 30
    return end(step) if step < 1_620 else 40 * (step - 1_000)


def twice_back(second: int) -> int:
    """Set back and recovered, then set back for good, within the newest ten commits."""
    step = (second - NOW_S) // 30
    known = {-6: 80_000, -5: 70_000, -4: 82_000, -3: 60_000, -2: 61_000, -1: 62_000, 0: 63_000}
    return known.get(step, 80_000 + 100 * (step + 6))


ROWS: list[tuple[str, Story, int]] = [
    ("keeps up, commits every 5 s", Story(end, every(5)), 0),
    ("keeps up, one slow batch of 105 s after commits every second", Story(end, every(1, NOW_S - 105)), 0),
    ("just started: one commit seen, 5 s old", Story(end, begun), NOW_S - 10),
    ("always 40 s behind, commits every 5 s", Story(end, lambda s: max(0, end((s - 40) // 5 * 5))), 0),
    ("always 200,000 records behind", Story(lambda s: end(s) + 200_000, every(5)), 0),
    ("reads 7 of 10 records written", Story(end, lambda s: int(0.7 * end(s // 5 * 5))), 0),
    ("the same, lag dips once", Story(end, dipping), 0),
    ("dead for 5 minutes, committed every minute", Story(end, every(60, 1_500), owned=False, populated=False), 0),
    ("hangs for 5 minutes, a member owns it", Story(end, every(5, 1_500)), 0),
    ("set back 3 minutes ago", Story(end, back), 0),
    ("set back, recovered, set back again", Story(end, twice_back), 0),
    ("offsets of a topic it no longer subscribes", Story(end, lambda s: 500 + min(s, 9), left_over=True), 0),
]  # fmt: skip


def as_burrow_judges(story: Story, from_s: int) -> str:
    """Burrow sees every commit, the newest ten, and a log end every ten seconds."""
    commits: list[Commit] = []
    for second in range(from_s, NOW_S + 1):
        offset = story.committed(second)
        if offset is not None and (not commits or commits[-1].offset != offset):
            commits.append(Commit(offset, second * 1000, max(0, end(second) - offset)))
    ends = [end(second) for second in range(max(from_s, NOW_S - 10 * RING), NOW_S + 1, 10)]
    return burrow_status(BurrowWindow(commits[-RING:], ends[-RING:]), now_ms=NOW_S * 1000).name


def table() -> str:
    lines = ["| consumer | Burrow | ours |", "|---|---|---|"]
    for name, story, from_s in ROWS:
        ours = LagStatus(int(judge([story], from_s=from_s, until_s=NOW_S).status[0])).name
        lines.append(f"| {name} | {as_burrow_judges(story, from_s)} | {ours} |")
    return "\n".join(lines)


def test_the_table_is_what_both_say() -> None:
    assert table() in PAGE.read_text()


@pytest.mark.parametrize("status", LagStatus)
def test_every_verdict_is_explained(status: LagStatus) -> None:
    assert f"| {status.name} |" in PAGE.read_text()
