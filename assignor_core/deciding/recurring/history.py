"""What the last weeks have shown, slot by slot: the mean load, and which brokers were far above it.

Made of closed windows and of when replicas were moved, so any process can make it again. What comes back on another
broker after a move is learned anew, and what no longer comes back is never asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from types import MappingProxyType
from typing import Any

from assignor_core.deciding.load_memory import Watched
from assignor_core.deciding.recurring.mended import FOLLOWED_MS, FollowedSkew, moved, unmended
from assignor_core.deciding.recurring.slots import DAY_SLOTS, SLOT_MS, slots_of
from assignor_core.deciding.skew_windows import SkewWindow

KEPT_DAYS = 56
"""Eight weeks: older days are forgotten."""
BROKERS_MAX = 16
"""Most brokers of which a slot keeps the share, the highest."""
DECIMALS = 3


@dataclass(frozen=True, slots=True)
class DayLoad:
    """One resource on one day (UTC), by slot of the day, 0 to 143."""

    mean_load: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """slot: mean load of a broker; of the slots of which anything is known."""
    shares: Mapping[int, Mapping[int, float]] = field(default_factory=lambda: MappingProxyType({}))
    """broker: slot: load over the mean, where that is high."""

    def with_slot(self, slot: int, mean_load: float, high: Mapping[int, float]) -> "DayLoad":
        """With what one slot has shown; it replaces what was known of it."""
        shares = dict(self.shares)
        if slot in self.mean_load:
            without = {broker: {at: row[at] for at in row if at != slot} for broker, row in shares.items()}
            shares = {broker: row for broker, row in without.items() if row}
        for broker, share in high.items():
            shares[broker] = {**shares.get(broker, {}), slot: round(share, DECIMALS)}
        return DayLoad({**self.mean_load, slot: round(mean_load, DECIMALS)}, shares)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; see `from_dict`."""
        shares = {str(broker): _text_keys(row) for broker, row in sorted(self.shares.items())}
        return {"mean_load": _text_keys(self.mean_load), "shares": shares}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DayLoad":
        """The day of `as_dict`; raises AttributeError, KeyError, TypeError and ValueError on anything else."""
        shares = {int(broker): _by_slot(row) for broker, row in values["shares"].items()}
        return cls(_by_slot(values["mean_load"]), shares)


@dataclass(frozen=True, slots=True)
class OpenSlot:
    """Sums over the windows of the slot that goes on, for one resource."""

    windows: int = 0
    mean_load: float = 0.0
    shares: Mapping[int, tuple[float, int]] = field(default_factory=lambda: MappingProxyType({}))
    """broker: sum of its shares, and of how many windows."""

    def after(self, mean_load: float, shares: Mapping[int, float]) -> "OpenSlot":
        """With one more window."""
        sums = dict(self.shares)
        for broker, share in shares.items():
            total, windows = sums.get(broker, (0.0, 0))
            sums[broker] = total + share, windows + 1
        return OpenSlot(self.windows + 1, self.mean_load + mean_load, sums)

    def high(self, above: float) -> dict[int, float]:
        """Brokers whose mean share is above, at most `BROKERS_MAX`."""
        means = {broker: total / windows for broker, (total, windows) in self.shares.items()}
        rows = ((share, -broker) for broker, share in means.items() if share > above)
        return {-minus_broker: share for share, minus_broker in nlargest(BROKERS_MAX, rows)}


@dataclass(frozen=True, slots=True, eq=False)
class RecurringLoad:
    """What is known after the window that ended at `newest_ms`."""

    newest_ms: int = 0
    days: Mapping[str, Mapping[int, DayLoad]] = field(default_factory=lambda: MappingProxyType({}))
    """resource: day since the epoch: slots that are over."""
    slot: int = -1
    """The slot that goes on, counted from the epoch."""
    open: Mapping[str, OpenSlot] = field(default_factory=lambda: MappingProxyType({}))
    changed_ms: int = 0
    """The newest move of replicas or leaders that the windows so far have shown."""
    followed: Mapping[str, Mapping[int, FollowedSkew]] = field(default_factory=lambda: MappingProxyType({}))
    """resource: broker: its skew that goes on. A restart forgets it."""

    def after(self, windows: Sequence[SkewWindow], watched: Watched, *, changed_ms: int = 0) -> "RecurringLoad":
        """With those of `windows`, oldest first, that are new; replicas or leaders were last moved at `changed_ms`."""
        history = self
        for window in windows:
            if window.window_end_ms > history.newest_ms:
                history = history._with(window, watched, changed_ms)
        return history

    def kept_until_ms(self) -> int:
        """End of the newest slot that is over: windows that began later must be seen again after a restart."""
        return max(0, self.slot) * SLOT_MS

    def share(self, resource: str, broker: int, slot: int) -> float | None:
        """The broker's load over the mean in a slot counted from the epoch, 1 where it was not high; None: unknown."""
        day, at = self.days.get(resource, {}).get(slot // DAY_SLOTS), slot % DAY_SLOTS
        if day is None or at not in day.mean_load:
            return None
        return day.shares.get(broker, {}).get(at, 1.0)

    def _with(self, window: SkewWindow, watched: Watched, changed_ms: int) -> "RecurringLoad":
        if window.completeness < watched.completeness_min:
            return replace(self, newest_ms=window.window_end_ms)
        history, by_resource = self._unmended(window, watched.enter_ratio, changed_ms)
        for slot in slots_of(window.window_start_ms, window.window_end_ms):
            if slot != history.slot:
                history = replace(history._closed(watched.reference), slot=slot, open={})
            sums = {
                resource: history.open.get(resource, OpenSlot()).after(window.mean_load.get(resource, 0.0), shares)
                for resource, shares in by_resource.items()
            }
            history = history._with_open({**history.open, **sums})
        return history

    def _unmended(
        self, window: SkewWindow, threshold: float, changed_ms: int
    ) -> tuple["RecurringLoad", dict[str, dict[int, float]]]:
        """With the end of `window` and the skews that go on; by resource each broker's share had none been mended."""
        start_ms, followed = window.window_start_ms, self.followed
        is_new = changed_ms > self.changed_ms
        if is_new and start_ms >= changed_ms:
            followed = {resource: moved(rows, changed_ms) for resource, rows in followed.items()}
        may_be_moving = is_new and 0 < changed_ms - start_ms <= FOLLOWED_MS
        going, by_resource = {}, {}
        for resource, shares in window.ratios.items():
            going[resource], by_resource[resource] = unmended(
                followed.get(resource, {}), shares, threshold=threshold, start_ms=start_ms, may_be_moving=may_be_moving
            )
        newest_ms = changed_ms if is_new and start_ms >= changed_ms else self.changed_ms
        return RecurringLoad(window.window_end_ms, self.days, self.slot, self.open, newest_ms, going), by_resource

    def _with_open(self, sums: Mapping[str, OpenSlot]) -> "RecurringLoad":
        return RecurringLoad(self.newest_ms, self.days, self.slot, sums, self.changed_ms, self.followed)

    def _closed(self, above: float) -> "RecurringLoad":
        """With the slot that went on as one that is over, and without days that are too old."""
        if self.slot < 0:
            return self
        days = {resource: dict(rows) for resource, rows in self.days.items()}
        day, at = divmod(self.slot, DAY_SLOTS)
        for resource, sums in self.open.items():
            rows = days.setdefault(resource, {})
            mean_load = sums.mean_load / sums.windows
            rows[day] = rows.get(day, DayLoad()).with_slot(at, mean_load, sums.high(above))
            if day not in self.days.get(resource, {}):
                days[resource] = {number: row for number, row in rows.items() if day - number <= KEPT_DAYS}
        return replace(self, days=days)


NO_HISTORY = RecurringLoad()


def _text_keys(row: Mapping[int, float]) -> dict[str, float]:
    return {str(slot): value for slot, value in sorted(row.items())}


def _by_slot(row: Mapping[str, Any]) -> dict[int, float]:
    return {int(slot): float(value) for slot, value in row.items()}
