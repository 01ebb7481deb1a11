"""Burrow's rules: the sixteen cases measured on Burrow itself, and sequences against another reading of its rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.lag.burrow import (
    BurrowStatus,
    BurrowWindow,
    Commit,
    burrow_group_status,
    burrow_status,
)

OK, WARN, STOP, STALL, REWIND = (BurrowStatus[name] for name in ("OK", "WARN", "STOP", "STALL", "REWIND"))
Row = tuple[int, int, int | None]


def window(commits: list[Row], log_ends: list[int]) -> BurrowWindow:
    """Commits as (seconds, offset, lag)."""
    return BurrowWindow([Commit(offset, seconds * 1000, lag) for seconds, offset, lag in commits], log_ends)


MOVING: list[Row] = [(0, 10, 5), (10, 20, 5), (20, 30, 5)]

CASES = [
    ("one commit, a second of silence", [(0, 10, 5)], [15], 1, 0, STOP),
    ("one commit, the same second", [(0, 10, 5)], [15], 0, 0, STALL),
    ("one commit, was caught up in the ring", [(0, 10, 5)], [10, 15], 9, 0, STALL),
    ("silence as long as the window", MOVING, [35], 40, 0, WARN),
    ("silence a second longer", MOVING, [35], 41, 0, STOP),
    ("offsets move, lag flat", MOVING, [35], 21, 0, WARN),
    ("lag dips once, then explodes", [(0, 10, 50), (10, 20, 49), (20, 30, 9000)], [9030], 21, 0, OK),
    ("offset fixed, lag above zero", [(0, 10, 5), (10, 10, 6), (20, 10, 7)], [17], 21, 0, STALL),
    ("the same with a zero lag in the window", [(0, 10, 0), (10, 10, 6), (20, 10, 7)], [17], 21, 0, OK),
    ("rewound, with a zero lag in the window", [(0, 30, 0), (10, 10, 25), (20, 20, 15)], [35], 21, 0, REWIND),
    ("rewound and recovered", [(0, 30, 5), (10, 10, 25), (20, 30, 25)], [55], 21, 0, WARN),
    (
        "a second rewind after one that recovered",
        [(0, 30, 5), (10, 10, 5), (20, 40, 5), (30, 20, 5)],
        [45],
        31,
        0,
        WARN,
    ),
    ("rewound, no lag now", [(0, 30, 5), (10, 10, 5), (20, 20, 0)], [20], 21, 0, OK),
    ("lag as much as allowed", MOVING, [35], 21, 5, OK),
    ("one stored lag within what is allowed", [(0, 10, 9), (10, 20, 5), (20, 30, 9)], [39], 21, 5, OK),
    ("offsets move, all lags unknown", [(0, 10, None), (10, 20, None), (20, 30, None)], [35], 21, 0, WARN),
]


@pytest.mark.parametrize(("commits", "ends", "now_s", "allowed", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])  # fmt: skip # noqa: E501
def test_as_burrow_itself_said(
    commits: list[Row], ends: list[int], now_s: int, allowed: int, expected: BurrowStatus
) -> None:
    assert burrow_status(window(commits, ends), now_ms=now_s * 1000, lag_allowed=allowed) is expected


def test_nothing_known_is_ok_and_a_group_is_capped() -> None:
    assert burrow_status(window([], [5]), now_ms=0) is OK
    assert burrow_status(window(MOVING, []), now_ms=0) is OK
    assert burrow_group_status([]) is BurrowStatus.NOTFOUND
    assert burrow_group_status([OK, WARN]) is WARN
    assert burrow_group_status([OK, REWIND]) is BurrowStatus.ERR


def read_again(commits: list[Row], ends: list[int], now_s: int, allowed: int) -> str:
    """The rules of the research page read on their own, without the product's code, as a table of facts."""
    offsets, lags = [row[1] for row in commits], [row[2] for row in commits if row[2] is not None]
    first_drop = next((i for i in range(1, len(offsets)) if offsets[i] - offsets[i - 1] < 0), None)
    facts = [
        ("OK", not max(0, ends[-1] - offsets[-1]) > allowed),
        ("STOP", now_s - commits[-1][0] > commits[-1][0] - commits[0][0] and min(ends) > offsets[-1]),
        ("REWIND", first_drop is not None and max(offsets[first_drop:]) < offsets[first_drop - 1]),
        ("OK", bool(lags) and min(lags) <= allowed),
        ("STALL", len(set(offsets)) == 1),
        ("WARN", sorted(lags) == lags),
        ("OK", True),
    ]
    return next(verdict for verdict, holds in facts if holds)


commit_rows = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 12), st.none() | st.integers(0, 6)), min_size=1, max_size=8
)


@pytest.mark.long
@given(commit_rows, st.lists(st.integers(0, 16), min_size=1, max_size=5), st.integers(0, 30), st.integers(0, 3))
def test_generated_sequences_are_judged_as_another_reading_judges_them(
    steps: list[Row], ends: list[int], silence_s: int, allowed: int
) -> None:
    seconds, commits = 0, []
    for step, offset, lag in steps:
        seconds += step
        commits.append((seconds, offset, lag))
    status = burrow_status(window(commits, ends), now_ms=(seconds + silence_s) * 1000, lag_allowed=allowed)
    assert status.name == read_again(commits, ends, seconds + silence_s, allowed)
