"""Consumers that followers serve, in the JSON cluster model: parts by rack, or bytes/s by replica."""

from collections.abc import Mapping, Sequence

from assignor_core.errors import InputError
from assignor_core.model_values import FIGURE_MAX, is_figure, misfit
from assignor_core.reader_racks import ReaderRacks, reader_racks
from assignor_core.wording import many

BY_RACK, BY_REPLICA = "reader_racks", "bytes_out_per_sec_by_replica"
"""Optional keys of a partition. With the second `load` has the leader's bytes out, else those of all replicas."""
Figures = float | tuple[float, ...]
ROUNDING = 1e-9


def read_by_racks(
    by_rack: object, by_replica: object, bytes_out: Figures, racks: Sequence[str | None], name: str
) -> tuple[Figures, ReaderRacks]:
    """(Bytes/s that consumers read from all replicas, who reads them) of a partition; raises InputError.

    `by_rack` or `by_replica` is given, `bytes_out` is its load's, `racks` are those of its replicas.

    >>> read_by_racks(None, [6.0, 2.0], 6.0, ["a", "b"], "partition t-0")
    (8.0, (('b', 0.25),))
    """
    if by_rack is not None and by_replica is not None:
        raise InputError(f"{name}: found both {BY_RACK} and {BY_REPLICA}, allowed is one of them")
    if by_replica is not None:
        return _by_replica(by_replica, bytes_out, racks, name)
    return bytes_out, _by_rack(by_rack, name)


def checked_parts(parts: ReaderRacks, name: str) -> None:
    """Raises InputError unless each part is above 0 and all are no more than the whole."""
    if any(not 0.0 < part <= 1.0 for _, part in parts) or sum(part for _, part in parts) > 1.0 + ROUNDING:
        raise misfit(f"{name}: {BY_RACK}", dict(parts), "an object of parts above 0 that add up to 1 at most")


def _by_rack(given: object, name: str) -> ReaderRacks:
    if not isinstance(given, Mapping) or not all(
        isinstance(rack, str) and is_figure(part) for rack, part in given.items()
    ):
        raise misfit(f"{name}: {BY_RACK}", given, "an object of parts above 0 by rack")
    parts = tuple((rack, float(part)) for rack, part in sorted(given.items()))
    checked_parts(parts, name)
    return parts


def _by_replica(
    given: object, bytes_out: Figures, racks: Sequence[str | None], name: str
) -> tuple[Figures, ReaderRacks]:
    if not isinstance(given, list) or len(given) != len(racks) or not all(map(is_figure, given)):
        allowed = f"a list with a number from 0 to {FIGURE_MAX:g} for each of {many(len(racks), 'replica')}"
        raise misfit(f"{name}: {BY_REPLICA}", given, allowed)
    leader, *followers = map(float, given)
    total = leader + sum(followers)
    readers = reader_racks((racks[0], leader), zip(racks[1:], followers, strict=True), {})
    if not isinstance(bytes_out, tuple):
        return total, readers
    if leader == 0 < total:
        raise InputError(f"{name}: {BY_REPLICA}: found 0 of the leader beside a load by window, allowed is more than 0")
    return tuple(rate * total / leader if leader else rate for rate in bytes_out), readers
