"""What the settings say of groups: lag that counts as none, and times in which a batch reads. By patterns of names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from assignor_core.lag import Standing
from assignor_core.lag.history import Ints
from assignor_core.maintenance import MaintenanceWindow, window_of
from streaming.settings import LagSettings
from streaming.views.lag_columns import PartitionKeys, of_group

T = TypeVar("T")
Patterns = Sequence[tuple[re.Pattern[str], T]]


@dataclass(frozen=True, slots=True)
class LagRules:
    """Rules by pattern; of a group the first counts that matches its name."""

    allowed_records: Patterns[int] = ()
    allowed_ms: Patterns[int] = ()
    schedules: Patterns[Sequence[MaintenanceWindow]] = ()

    @classmethod
    def of(cls, settings: LagSettings) -> "LagRules":
        """The rules that are set."""
        schedules = {pattern: tuple(map(window_of, texts)) for pattern, texts in settings.schedules.items()}
        return cls(_compiled(settings.allowed_records), _compiled(settings.allowed_ms), _compiled(schedules))

    def applied(self, standing: Standing, keys: Ints, names: PartitionKeys, *, now_ms: int) -> Standing:
        """The standing of these keys, which are sorted, with what the rules allow."""
        if not (self.allowed_records or self.allowed_ms or self.schedules):
            return standing
        _, group = np.unique(of_group(keys), return_inverse=True)
        groups = names.group_names(keys)
        openings = [_newest_opening(_first(self.schedules, name, ()), now_ms) for name in groups]
        return replace(
            standing,
            allowed_records=np.array([_first(self.allowed_records, name, 0) for name in groups], dtype=float)[group],
            allowed_ms=np.array([_first(self.allowed_ms, name, 0) for name in groups], dtype=float)[group],
            reads_from_ms=np.array([begin for begin, _ in openings])[group],
            reads_until_ms=np.array([end for _, end in openings])[group],
        )


NO_RULES = LagRules()


def _compiled(values: Mapping[str, T]) -> Patterns[T]:
    return tuple((re.compile(pattern), value) for pattern, value in values.items())


def _first(patterns: Patterns[T], name: str, otherwise: T) -> T:
    return next((value for pattern, value in patterns if pattern.search(name)), otherwise)


def _newest_opening(windows: Sequence[MaintenanceWindow], now_ms: int) -> tuple[float, float]:
    """The time in which the group reads, or has read last; all time without a schedule."""
    return max((window.newest_opening(now_ms) for window in windows), default=(-np.inf, np.inf))
