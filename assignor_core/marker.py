"""The marker that a rebalancer leaves on the cluster that it changes, so that another one with other tables sees it.

A lease lies in one folder of tables. Two folders are two leases, and neither knows of the other; the cluster is what
both see. A folder that was copied has the same lease id, so a marker also bears an id that its holder has drawn when it
took the lease. What is written on the cluster, and how, is the client's business; which marker counts is decided here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MARKER_INTERVAL_MS = 15_000
"""How often an owner renews its marker while it changes the cluster."""
MARKER_TTL_MS = 120_000
"""A marker that stood still for so long is stale: its owner is gone."""
REPLACED_SILENT_MS = 30_000
"""A marker of a replaced holder that stood still for so long is stale. The lease of such a holder was taken over while
nobody could see that its process had ended. If the tables are a copy, the holder continues with the other tables and
renews its marker within this time.
"""


@dataclass(frozen=True, slots=True)
class Marker:
    """One rebalancer: the id of its lease, its process, and times by that process's clock, ms since 1970 UTC."""

    lease_id: str
    owner: str
    since_ms: int
    renewed_ms: int
    is_released: bool = False
    """Whether its owner has ended what it did. The marker stays, for people: it shows who changed the cluster last."""
    holder_id: str = ""
    """Drawn by its process when it took the lease; empty of an earlier version."""

    @property
    def identity(self) -> tuple[str, str]:
        """Lease and holder: of two that announce themselves at once the smaller one goes first."""
        return self.lease_id, self.holder_id

    def __str__(self) -> str:
        return f"{self.owner} with lease {self.lease_id[:12]}"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease: the ids that its markers bear, and whom it has followed."""

    lease_id: str
    holder_id: str
    replaced_id: str | None = None
    """Holder of the row that this holder has replaced; None where there was none."""
    replaced_is_gone: bool = True
    """Whether the replaced holder has given the lease back, or its process was seen to have ended."""

    @property
    def identity(self) -> tuple[str, str]:
        """Identity that the holder's own markers bear."""
        return self.lease_id, self.holder_id

    def silent_max_ms(self, marker: Marker) -> int | None:
        """Returns how long `marker` counts without a renewal; None if it doesn't count at all."""
        if marker.is_released or marker.identity == self.identity:
            return None
        if marker.identity != (self.lease_id, self.replaced_id):
            return MARKER_TTL_MS
        return None if self.replaced_is_gone else REPLACED_SILENT_MS


@dataclass(slots=True)
class MarkerWatch:
    """Which markers of others stand still, by one observer's own clock: no two clocks are compared."""

    _first_seen: dict[tuple[tuple[str, str], int], int]

    @classmethod
    def begin(cls) -> "MarkerWatch":
        """Returns a watch that has seen no marker yet."""
        return cls({})

    def alive(self, markers: Iterable[Marker], holder: Holder, *, clock_ms: int) -> tuple[Marker, ...]:
        """Markers of other holders that are not released and not known to be stale, by their ids.

        >>> watch, other = MarkerWatch.begin(), Marker("b", "host/1", 0, 5)
        >>> len(watch.alive([other], Holder("a", "1"), clock_ms=0))
        1
        >>> watch.alive([other], Holder("a", "1"), clock_ms=MARKER_TTL_MS + 1)
        ()
        """
        limits = {marker: limit for marker in markers if (limit := holder.silent_max_ms(marker)) is not None}
        keys = {marker: (marker.identity, marker.renewed_ms) for marker in limits}
        self._first_seen = {key: self._first_seen.get(key, clock_ms) for key in keys.values()}
        fresh = (marker for marker, limit_ms in limits.items() if clock_ms - self._first_seen[keys[marker]] <= limit_ms)
        return tuple(sorted(fresh, key=lambda marker: marker.identity))
