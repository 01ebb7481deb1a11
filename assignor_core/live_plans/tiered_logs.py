"""What a plan copies of logs whose older part is in remote storage (KIP-405): the local part alone. Pure.

A new replica of such a log begins where the leader's disk does, and takes over what remote storage holds as it is. On
brokers that say so (KIP-1023) it begins where remote storage ends, and copies only what is not uploaded yet.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from assignor_core.disks import NO_UPLOADS, Uploads
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.price import by_wave, wave_of
from assignor_core.wording import counted, first_named

BEGINS_BEHIND_UPLOADS = "follower.fetch.last.tiered.offset.enable"
"""Setting of brokers from Kafka 4.3 on."""
NAMED_MAX = 5
"""Brokers named in one line."""

AskUploads = Callable[[Collection[PartitionKey]], Uploads]
"""Reads uploads from the cluster, of partitions whose log begins in remote storage."""


def none_known(_: Collection[PartitionKey]) -> Uploads:
    """Returns no uploads, where no cluster can be read."""
    return NO_UPLOADS


def with_uploads(
    plan: Plan,
    remote_bytes: Mapping[PartitionKey, float],
    ask: AskUploads,
    throttle: float | None,
    dead: frozenset[int],
) -> Plan:
    """`plan` at the price of what it copies of tiered logs, with the lines that name it.

    `remote_bytes` is what remote storage alone holds of each leader's log. The bytes and the time of waves follow, by
    the throttle of the plan's policy; brokers that are `dead` send nothing. Whatever was worked out of local bytes is
    left out where the price is another: `cheaper`, `least_bytes`.
    """
    tiered = [row for row in plan.movements if _new_replicas(row) and remote_bytes.get(row.key)]
    if not tiered:
        return plan
    uploads = ask([row.key for row in tiered])
    cut = {row.key: share for row in tiered if (share := _copied_share(row, uploads)) < 1.0}
    movements = tuple(
        replace(row, bytes_to_move=row.bytes_to_move * cut[row.key]) if row.key in cut else row
        for row in plan.movements
    )
    local = local_bytes_note([row for row in movements if row.key not in cut], remote_bytes)
    notes = (
        *([] if local is None else [local]),
        *_behind_uploads_notes([row for row in tiered if row.key in cut], cut, remote_bytes, uploads),
    )
    plan = replace(plan, diagnosis=(*plan.diagnosis, *notes))
    if not cut:
        return plan
    in_waves = by_wave(movements)
    waves = tuple(wave_of(in_waves[number], throttle, dead) for number in range(len(plan.waves)))
    return replace(plan, movements=movements, waves=waves, cheaper=(), least_bytes=None)


def local_bytes_note(movements: Iterable[Movement], remote_bytes: Mapping[PartitionKey, float]) -> str | None:
    """The line of a plan that names how few bytes it copies; None if it copies nothing of a tiered log.

    >>> moved = Movement("t", 0, (1, 2), (3, 2), 10.0)
    >>> local_bytes_note([moved], {("t", 0): 90.0})
    '1 movement is of a tiered log and copies local bytes only: 10 of 100 bytes, the rest stays in remote storage'
    """
    tiered = [row for row in movements if _new_replicas(row) and remote_bytes.get(row.key)]
    if not tiered:
        return None
    local = sum(row.bytes_to_move for row in tiered)
    whole = local + _remote(tiered, remote_bytes)
    return f"{_what(tiered)} local bytes only: {local:.0f} of {whole:.0f} bytes, the rest stays in remote storage"


def _behind_uploads_notes(
    tiered: Sequence[Movement],
    cut: Mapping[PartitionKey, float],
    remote_bytes: Mapping[PartitionKey, float],
    uploads: Uploads,
) -> list[str]:
    """The lines on movements that copy only a part of the local bytes, which they bear: how much, and who leads."""
    if not tiered:
        return []
    copied = sum(row.bytes_to_move * cut[row.key] for row in tiered)
    whole = sum(row.bytes_to_move for row in tiered) + _remote(tiered, remote_bytes)
    size = f"{copied:.0f} of {whole:.0f} bytes"
    lines = [f"{_what(tiered)} only what is not uploaded yet: {size}, as brokers say with {BEGINS_BEHIND_UPLOADS}"]
    leaders = [row.new_replicas[0] for row in tiered if row.new_replicas[0] in _begin_behind(row, uploads)]
    if leaders:
        get = counted(len(leaders), "partition gets", "partitions get")
        where = first_named(sorted(set(leaders)), NAMED_MAX, "broker {}".format)
        lines.append(
            f"{get} a new leader that begins there ({where}): until local retention has refilled, it reads older "
            "records from remote storage for its consumers"
        )
    return lines


def _what(tiered: Sequence[Movement]) -> str:
    if len(tiered) == 1:
        return "1 movement is of a tiered log and copies"
    return f"{len(tiered)} movements are of tiered logs and copy"


def _remote(tiered: Iterable[Movement], remote_bytes: Mapping[PartitionKey, float]) -> float:
    """Bytes of new replicas that remote storage alone holds."""
    return sum(remote_bytes[row.key] * len(_new_replicas(row)) for row in tiered)


def _new_replicas(movement: Movement) -> frozenset[int]:
    return frozenset(movement.new_replicas).difference(movement.old_replicas)


def _begin_behind(movement: Movement, uploads: Uploads) -> frozenset[int]:
    """New replicas that begin where remote storage ends."""
    return _new_replicas(movement) & uploads.brokers if movement.key in uploads.waiting else frozenset()


def _copied_share(movement: Movement, uploads: Uploads) -> float:
    """Part of the local bytes that the new replicas copy together: all but what those skip that begin behind it."""
    skipped = len(_begin_behind(movement, uploads)) * (1.0 - uploads.waiting.get(movement.key, 1.0))
    return 1.0 - skipped / len(_new_replicas(movement))
