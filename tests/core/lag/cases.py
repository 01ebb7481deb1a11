"""Consumers as little stories a reader can check by head: what each partition's log and group did, window by window."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from assignor_core.lag import Evaluated, LagHistory, LagPolicy, LagStatus, Standing, evaluate

SAMPLE_S = 10
WINDOW_S = 60
POLICY = LagPolicy()


@dataclass(frozen=True, slots=True)
class Story:
    """Log end (None: unknown) and committed offset (None: none yet) as functions of the second; who is there at the
    end."""

    log_end: Callable[[int], int | None]
    committed: Callable[[int], int | None]
    owned: bool = True
    populated: bool = True
    left_over: bool = False
    log_start: int = 0


def history(stories: Sequence[Story], *, from_s: int, until_s: int) -> LagHistory:
    """What the pipeline keeps of samples every ten seconds: the first and the newest of each minute."""
    times = range(from_s, until_s + 1, SAMPLE_S)
    windows: dict[int, list[int]] = {}
    for second in times:
        windows.setdefault(second // WINDOW_S, []).append(second)
    kept = [second for window in windows.values() for second in (window[0], window[-1])]
    committed = [story.committed(second) for story in stories for second in kept]
    log_end = [story.log_end(second) for story in stories for second in kept]
    return LagHistory(
        np.arange(len(stories)) * len(kept),
        np.tile(np.array(kept, dtype=float) * 1000, len(stories)),
        np.array([np.nan if value is None else value for value in committed], dtype=float),
        np.array([np.nan if value is None else value for value in log_end], dtype=float),
    )


def judge(stories: Sequence[Story], *, until_s: int, from_s: int = 0, policy: LagPolicy = POLICY) -> Evaluated:
    """Verdicts at `until_s`, the monitor having looked since `from_s`."""
    standing = Standing(
        np.array([story.owned for story in stories]),
        np.array([story.populated for story in stories]),
        np.array([story.left_over for story in stories]),
        np.array([story.log_start for story in stories], dtype=float),
    )
    points = history(stories, from_s=from_s, until_s=until_s)
    return evaluate(points, standing, policy, now_ms=until_s * 1000)


def verdict(story: Story, *, until_s: int, from_s: int = 0) -> LagStatus:
    """Of one partition."""
    return LagStatus(int(judge([story], until_s=until_s, from_s=from_s).status[0]))
