"""The marker of this lease on the cluster: held while an execution is under way, so that other tables' control waits.

The lease keeps two processes with the same tables apart. Two folders of tables are two leases; what both see is the
cluster. So nothing is begun there while another lease's marker is held and renewed, and the marker is announced a
moment before the first change: of two that announce themselves at once, the greater lease id gives way.
"""

from dataclasses import replace

import structlog

from assignor_core.marker import MARKER_INTERVAL_MS, Marker, MarkerWatch
from streaming.cluster.ports import MarkerWriter
from streaming.control.journal import owner
from streaming.control.lease import Lease
from streaming.errors import AnotherControl, RebalancerError

log = structlog.get_logger()

ANNOUNCED_BEFORE_MS = 2_000
"""So long a new marker stands before the first change: every broker's metadata shows it by then."""


class ClusterMarker:
    """Call `hold` before each step of an execution, `release` once it has ended or waits."""

    def __init__(self, cluster: MarkerWriter, lease: Lease) -> None:
        self._cluster = cluster
        self._lease = lease
        self._watch = MarkerWatch.begin()
        self._own: Marker | None = None
        self._written_ms = 0
        self._announced_ms = 0
        self._stands = False

    def hold(self) -> bool:
        """Whether the cluster may be changed now; False while the marker is only announced.

        Raises AnotherControl while the control of other tables changes the cluster. Markers are read as often as ours
        is renewed, not at each step: a cluster may have thousands of quotas.
        """
        assert self._lease.lease_id is not None, "only the holder of a lease asks"
        clock_ms = self._lease.clock()
        if self._stands and clock_ms - self._written_ms < MARKER_INTERVAL_MS:
            return True
        markers = self._cluster.markers()
        ours = [marker for marker in markers if marker.lease_id == self._lease.lease_id]
        others = self._watch.alive(markers, own_lease_id=self._lease.lease_id, clock_ms=clock_ms)
        if others and (self._own is None or not ours or others[0].lease_id < self._lease.lease_id):
            self.release()
            raise AnotherControl(
                f"{others[0]} changes this cluster: it has other tables than {self._lease.root}. Stop one of the two; "
                "`rebalancer check` shows the markers"
            )
        if self._own is None or not ours:
            self._announce(ours, clock_ms)
        if clock_ms - self._written_ms >= MARKER_INTERVAL_MS:
            self._write(replace(self._own_marker(), renewed_ms=self._lease.wall_clock()), markers, clock_ms)
        self._stands = clock_ms - self._announced_ms >= ANNOUNCED_BEFORE_MS
        return self._stands

    def release(self) -> None:
        """Nothing is under way: the marker stays as the last one that changed the cluster. A failure is only logged."""
        own, self._own, self._stands = self._own, None, False
        if own is None:
            return
        try:
            self._cluster.write_marker(replace(own, is_released=True))
        except RebalancerError as error:
            log.warning("marker_not_released", error=str(error))

    def _announce(self, ours: list[Marker], clock_ms: int) -> None:
        """A marker that this lease holds already stands long enough: its process was killed, or taken over from."""
        now_ms = self._lease.wall_clock()
        self._own = Marker(self._lease.lease_id or "", owner(), now_ms, now_ms)
        self._written_ms = clock_ms - MARKER_INTERVAL_MS
        stood = any(not marker.is_released for marker in ours)
        self._announced_ms = clock_ms - ANNOUNCED_BEFORE_MS if stood else clock_ms

    def _own_marker(self) -> Marker:
        assert self._own is not None
        return self._own

    def _write(self, marker: Marker, markers: tuple[Marker, ...], clock_ms: int) -> None:
        """Markers that nobody renews any more go with it, so that one stays on a cluster at rest."""
        alive = self._watch.alive(markers, own_lease_id=marker.lease_id, clock_ms=clock_ms)
        replaced = [row for row in markers if row not in alive]
        for row in replaced:
            if row.lease_id != marker.lease_id:
                log.warning("marker_replaced", owner=row.owner, lease_id=row.lease_id, released=row.is_released)
        self._cluster.write_marker(marker, replaced)
        self._own, self._written_ms = marker, clock_ms
