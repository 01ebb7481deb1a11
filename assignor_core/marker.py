"""The marker that a rebalancer leaves on the cluster that it changes, so that another one with other tables sees it.

A lease lies in one folder of tables. Two folders are two leases, and neither knows of the other; the cluster is what
both see. What is written there, and how, is the client's business; which marker counts is decided here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MARKER_INTERVAL_MS = 15_000
"""So often a marker is renewed while its owner changes the cluster."""
MARKER_TTL_MS = 120_000
"""A marker that stood still for so long is stale: its owner is gone."""


@dataclass(frozen=True, slots=True)
class Marker:
    """One rebalancer: the id of its lease, its process, and times by that process's clock, ms since 1970 UTC."""

    lease_id: str
    owner: str
    since_ms: int
    renewed_ms: int
    is_released: bool = False
    """Whether its owner has ended what it did. The marker stays, for people: it shows who changed the cluster last."""

    def __str__(self) -> str:
        return f"{self.owner} with lease {self.lease_id[:12]}"


@dataclass(slots=True)
class MarkerWatch:
    """Which markers of others stand still, by one observer's own clock: no two clocks are compared."""

    _first_seen: dict[tuple[str, int], int]

    @classmethod
    def begin(cls) -> "MarkerWatch":
        """Nothing has been seen yet."""
        return cls({})

    def alive(self, markers: Iterable[Marker], *, own_lease_id: str, clock_ms: int) -> tuple[Marker, ...]:
        """Markers of other leases that are held and not known to be stale, by lease id.

        >>> watch, other = MarkerWatch.begin(), Marker("b", "host/1", 0, 5)
        >>> len(watch.alive([other], own_lease_id="a", clock_ms=0))
        1
        >>> watch.alive([other], own_lease_id="a", clock_ms=MARKER_TTL_MS + 1)
        ()
        """
        held = [marker for marker in markers if not marker.is_released and marker.lease_id != own_lease_id]
        keys = {(marker.lease_id, marker.renewed_ms) for marker in held}
        self._first_seen = {key: self._first_seen.get(key, clock_ms) for key in keys}
        fresh = (
            marker
            for marker in held
            if clock_ms - self._first_seen[marker.lease_id, marker.renewed_ms] <= MARKER_TTL_MS
        )
        return tuple(sorted(fresh, key=lambda marker: marker.lease_id))
