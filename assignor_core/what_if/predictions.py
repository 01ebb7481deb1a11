"""The figures that a prediction comes down to, and the same of what came, side by side. Unknown is None, never 0."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from assignor_core.execution.life_cycle import Execution
from assignor_core.load_history.windows import resource_capacities
from assignor_core.model import Capacity
from assignor_core.replays.placed_cluster import SHOWN, ReplayedHours
from assignor_core.resources import Resource
from assignor_core.skew import skew_of
from assignor_core.what_if.outlook import Headroom

HEADROOM_LEFT = "headroom_left"
HourLoads = Mapping[Resource, Mapping[int, float]]
"""Load by broker in one hour; brokers and resources that are not known are absent."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was predicted, or what came."""

    max_over_mean: Mapping[str, float] = field(default_factory=dict)
    """By resource, in the last hour."""
    headroom_left: Mapping[str, float] = field(default_factory=dict)
    """By resource: the least share of its capacity that any broker had left, in the worst hour of the last day."""
    bytes_copied: float | None = None
    duration_ms: float | None = None
    """Duration of all plans, one after the other."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure as it was predicted and as it came."""

    figure: str
    predicted: float | None
    came: float | None

    @property
    def error(self) -> float | None:
        """Came over predicted, less 1; None of shares, where one of them is not known, or nothing was predicted."""
        is_share = self.figure.endswith(HEADROOM_LEFT)
        return None if is_share or self.came is None or not self.predicted else self.came / self.predicted - 1.0


def predicted_outlook(replayed: ReplayedHours, headroom: Iterable[Headroom]) -> Outlook:
    """What a replay predicts; the duration is unknown where a plan had not ended."""
    left: dict[str, float] = {}
    for row in headroom:
        left[row.resource] = min(row.left_share, left.get(row.resource, row.left_share))
    durations = [plan.duration_ms for plan in replayed.plans]
    known = [duration for duration in durations if duration is not None]
    return Outlook(
        {name: float(values[-1]) for name, values in replayed.max_over_mean.items()},
        left,
        replayed.copied_bytes,
        float(sum(known)) if len(known) == len(durations) else None,
    )


def outlook_that_came(
    hours: Sequence[HourLoads],
    capacities: Mapping[Resource, Mapping[int, float]],
    executions: Iterable[Execution],
    *,
    given: Mapping[int, Capacity] = MappingProxyType({}),
    drained: frozenset[int] = frozenset(),
) -> Outlook:
    """What came of `hours`, oldest first, and of `executions`, of which those count that were carried out in full.

    Headroom is of `capacities`. max/mean is the one that was predicted: of what is used of the capacities that are
    `given`, where all brokers have one, and without brokers that are `drained`.
    """
    done = [(row, row.done_ms) for row in executions if row.done_ms is not None]
    newest = {
        resource: {broker: load for broker, load in loads.items() if broker not in drained}
        for resource, loads in (hours[-1] if hours else {}).items()
    }
    return Outlook(
        {
            resource.value: skew_of(loads, resource_capacities(given, resource, loads)).max_over_mean
            for resource in SHOWN
            if (loads := newest.get(resource))
        },
        {
            resource.value: min(left)
            for resource in SHOWN
            if (left := _left(hours, resource, capacities.get(resource, {})))
        },
        float(sum(row.figures.bytes_moved for row, _ in done)) if done else None,
        float(sum(row.worked_ms(done_ms) for row, done_ms in done)) if done else None,
    )


def compare(predicted: Outlook, came: Outlook) -> tuple[Compared, ...]:
    """Each figure of either, side by side.

    >>> rows = compare(Outlook({"bytes_in": 1.25}, bytes_copied=100.0), Outlook({"bytes_in": 1.5}))
    >>> [(row.figure, row.predicted, row.came, row.error and round(row.error, 3)) for row in rows][:2]
    [('bytes_in_max_over_mean', 1.25, 1.5, 0.2), ('bytes_copied', 100.0, None, None)]
    """
    return (
        *_by_resource("max_over_mean", predicted.max_over_mean, came.max_over_mean),
        Compared("bytes_copied", predicted.bytes_copied, came.bytes_copied),
        Compared("duration_ms", predicted.duration_ms, came.duration_ms),
        *_by_resource(HEADROOM_LEFT, predicted.headroom_left, came.headroom_left),
    )


def _by_resource(name: str, predicted: Mapping[str, float], came: Mapping[str, float]) -> Iterable[Compared]:
    for resource in SHOWN:
        if resource in predicted or resource in came:
            yield Compared(f"{resource}_{name}", predicted.get(resource), came.get(resource))


def _left(hours: Sequence[HourLoads], resource: Resource, capacities: Mapping[int, float]) -> list[float]:
    return [
        1.0 - load / capacities[broker]
        for hour in hours
        for broker, load in hour.get(resource, {}).items()
        if capacities.get(broker)
    ]
