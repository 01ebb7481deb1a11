"""How a prediction of `rebalancer what-if` is shown: as plain data, and in lines for people."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from assignor_core.resources import Resource
from assignor_core.what_if import Changes, Replay, ReplayedPlan
from assignor_core.what_if.outlook import Bound, Growth
from assignor_core.wording import bytes_text, counted, first_named
from streaming.commands.plan_price import accuracy_line, duration_text
from streaming.control.what_if import Prediction
from streaming.settings import HOUR_MS, Settings
from streaming.tables import utc
from streaming.views.accuracy import accuracy_data

PLANS_SHOWN = 20
BROKERS_NAMED = 5
HEADROOM_SHOWN = 5
PAUSE_SHOWN_FROM_MS = 60_000
BOUND_SHOWN_FROM = 1.1
"""A bound on max/mean below is no news."""


def as_data(prediction: Prediction) -> dict[str, Any]:
    """For programs; times are ms UTC of the recorded hours."""
    result, history = prediction.replay, prediction.history
    return {
        "cluster": history.cluster_name,
        "changes": changes_data(prediction.changes),
        "brokers": len(history.brokers),
        "brokers_away": sorted(prediction.away),
        "brokers_left_out": list(history.silent),
        "partitions": len(history.partitions),
        "partitions_unknown": history.unknown_count,
        **replay_data(result),
        "headroom": [{**asdict(row), "left_share": row.left_share} for row in prediction.headroom],
        "bounds": [asdict(row) for row in prediction.bounds],
        "growth": None if prediction.growth is None else asdict(prediction.growth),
        "accuracy": accuracy_data(prediction.accuracy),
        "brokers_needed": [asdict(row) for row in prediction.brokers_needed],
    }


def replay_data(result: Replay) -> dict[str, Any]:
    """What came of one replay."""
    return {
        "hours": len(result.hour_start_ms),
        "hour_start_ms": list(result.hour_start_ms),
        "max_over_mean": {name: values.tolist() for name, values in result.max_over_mean.items()},
        "windows": result.windows,
        "windows_in_skew": result.windows_in_skew,
        "even_after_ms": result.even_after_ms,
        "offline_partitions": result.offline_count,
        "holds": result.holds,
        "bytes_to_move": sum(plan.bytes_to_move for plan in result.plans),
        "bytes_copied": result.copied_bytes,
        "plans": [_plan_data(plan) for plan in result.plans],
    }


def changes_data(changes: Changes) -> dict[str, Any]:
    """What is assumed."""
    return {
        "add_brokers": changes.add_brokers,
        "racks_down": sorted(changes.racks_down),
        "brokers_down": sorted(changes.brokers_down),
        "drain": sorted(changes.drain),
        "traffic": changes.traffic,
        "topic_traffic": dict(changes.topic_traffic),
        "grow": dict(changes.grow),
        "drop_topics": sorted(changes.drop_topics),
    }


def as_text(prediction: Prediction, settings: Settings) -> Iterator[str]:
    """Lines for people."""
    result, history = prediction.replay, prediction.history
    hours, starts = len(result.hour_start_ms), result.hour_start_ms
    span = f"{utc(starts[0]):%Y-%m-%d %H:%M} to {utc(starts[-1] + HOUR_MS):%Y-%m-%d %H:%M} UTC"
    brokers = counted(len(history.brokers), "broker", "brokers")
    partitions = counted(len(history.partitions), "partition", "partitions")
    yield f"{counted(hours, 'recorded hour', 'recorded hours')} ({span}), {brokers}, {partitions}"
    yield f"assumed: {changes_text(prediction.changes)}"
    yield from _notes(prediction)
    yield from skew_lines(result, settings)
    yield from plan_lines(result)
    accuracy = accuracy_line(accuracy_data(prediction.accuracy))
    yield accuracy or "own error: unknown, as fewer than 3 plans here were carried out and measured"
    yield from _headroom_lines(prediction)
    yield from _bound_lines(prediction.bounds)
    yield from _growth_lines(prediction)


def changes_text(changes: Changes) -> str:
    """What is assumed, in words.

    >>> changes_text(Changes(add_brokers=2, traffic=1.5, grow={"orders": 60}))
    '2 brokers more, traffic x 1.5, orders with 60 partitions'
    """
    words = [
        *([f"{counted(changes.add_brokers, 'broker', 'brokers')} more"] if changes.add_brokers else []),
        *(f"rack {rack} down" for rack in sorted(changes.racks_down)),
        *(f"broker {broker} down" for broker in sorted(changes.brokers_down)),
        *(f"broker {broker} drained" for broker in sorted(changes.drain)),
        *([f"traffic x {changes.traffic:g}"] if changes.traffic != 1.0 else []),
        *(f"traffic of {topic} x {factor:g}" for topic, factor in sorted(changes.topic_traffic.items())),
        *(f"{topic} with {counted(count, 'partition', 'partitions')}" for topic, count in sorted(changes.grow.items())),
        *(f"without {topic}" for topic in sorted(changes.drop_topics)),
    ]
    return ", ".join(words) or "nothing"


def skew_lines(result: Replay, settings: Settings) -> Iterator[str]:
    """How even it is, and how long it was not."""
    for name in settings.trigger.resources:
        ratios = result.max_over_mean[name]
        yield (
            f"{Resource(name).words} max/mean: {ratios[0]:.2f} in the first hour, {ratios.max():.2f} in the worst, "
            f"{ratios[-1]:.2f} in the last"
        )
    minutes = result.windows_in_skew * settings.pipeline.window_ms / 60_000
    after = result.even_after_ms
    even = "still so at the end" if after is None else f"for the last time after {duration_text(after)}"
    enter = settings.trigger.enter_ratio
    yield f"above {enter:g} for {minutes:.0f} min{f', {even}' if result.windows_in_skew else ''}"


def plan_lines(result: Replay) -> Iterator[str]:
    """The plans, and what they copy."""
    copied = result.copied_bytes
    yield f"{counted(len(result.plans), 'plan', 'plans')}, {bytes_text(copied)} copied"
    for plan in result.plans[:PLANS_SHOWN]:
        yield f"  {_plan_text(plan, result.hour_start_ms[0])}"
    if len(result.plans) > PLANS_SHOWN:
        yield f"  ... and {len(result.plans) - PLANS_SHOWN} more (--json shows all)"


def _plan_text(plan: ReplayedPlan, start_ms: int) -> str:
    figures = plan.max_over_mean.get(Resource.BYTES_IN.value)
    change = f", bytes in {figures[0]:.2f} -> {figures[1]:.2f}" if figures else ""
    took = "not ended" if plan.duration_ms is None else f"in {duration_text(plan.duration_ms)}{_pauses_text(plan)}"
    given_up = ", given up at control.execution_deadline_ms" if plan.given_up else ""
    after = duration_text(plan.begun_ms - start_ms)
    moves = counted(plan.movements, "movement", "movements")
    size = f"{moves}, {bytes_text(plan.bytes_to_move)}"
    return f"after {after}, {plan.reason}: {size} {took}{change}{given_up}"


def _pauses_text(plan: ReplayedPlan) -> str:
    """That there were pauses, or hours that nobody recorded: they are no part of the duration."""
    passed_ms = (plan.ended_ms or plan.begun_ms) - plan.begun_ms
    return " without pauses" if passed_ms - (plan.duration_ms or 0) >= PAUSE_SHOWN_FROM_MS else ""


def _plan_data(plan: ReplayedPlan) -> dict[str, Any]:
    figures = {name: {"before": pair[0], "after": pair[1]} for name, pair in plan.max_over_mean.items()}
    return {**asdict(plan), "max_over_mean": figures}


def _notes(prediction: Prediction) -> Iterator[str]:
    history, result = prediction.history, prediction.replay
    if history.silent:
        named = first_named(history.silent, BROKERS_NAMED)
        yield f"brokers that sent nothing in the newest window are left out with their replicas: {named}"
    if history.unknown_count:
        unknown = counted(history.unknown_count, "partition", "partitions")
        yield f"the load of {unknown} is unknown: each counts at the mean of all"
    sizes_unknown = [row.broker_id for row in history.brokers if row.total_bytes is None]
    if sizes_unknown:
        brokers = counted(len(sizes_unknown), "broker", "brokers")
        yield f"what is free on the disks of {brokers} is unknown: taken as enough"
    if result.offline_count:
        lost = counted(result.offline_count, "partition has", "partitions have")
        yield f"{lost} no replica on a broker that is alive, and so no leader"


def _headroom_lines(prediction: Prediction) -> Iterator[str]:
    if not prediction.headroom:
        yield "headroom: unknown, as no capacities are known (planner.capacities)"
        return
    for row in prediction.headroom[:HEADROOM_SHOWN]:
        words = Resource(row.resource).words
        left = f"{row.left_share:.0%} of its {words} left"
        yield f"headroom of broker {row.broker}: {left} in the worst hour of the last day"


def _bound_lines(bounds: tuple[Bound, ...]) -> Iterator[str]:
    for row in bounds:
        if row.max_over_mean >= BOUND_SHOWN_FROM:
            words = Resource(row.resource).words
            yield f"moving can't bring {words} max/mean below {row.max_over_mean:.2f} in the busiest hour"


def _growth_lines(prediction: Prediction) -> Iterator[str]:
    growth = prediction.growth
    if growth is None:
        yield "growth: unknown, as too few days are recorded"
        return
    yield _growth_text(growth)
    by_days: dict[int, list[str]] = {}
    for row in prediction.brokers_needed:
        spread = f"{row.likely} ({row.low} to {row.high})"
        by_days.setdefault(row.days_ahead, []).append(f"{Resource(row.resource).words} {spread}")
    for days, needs in by_days.items():
        yield f"  brokers needed in {days} days: {', '.join(needs)}"


def _growth_text(growth: Growth) -> str:
    month = [(rate**30 - 1) * 100 for rate in (growth.per_day, growth.low, growth.high)]
    return f"growth: {month[0]:+.1f} % in 30 days (80 %: {month[1]:+.1f} to {month[2]:+.1f}), of {growth.days} days"
