"""The marker of this lease on the cluster: held while an execution is under way, so that other tables' control waits.

The lease keeps two processes with the same tables apart. Two folders of tables are two leases; what both see is the
cluster. So nothing is begun there while another lease's marker is held and renewed, and the marker is announced a
moment before the first change: of two that announce themselves at once, the greater lease id gives way.
"""

from collections.abc import Collection
from dataclasses import replace

import structlog

from assignor_core.marker import MARKER_INTERVAL_MS, Holder, Marker, MarkerWatch
from streaming.cluster.ports import MarkerWriter
from streaming.control.journal import owner
from streaming.control.lease import Lease
from streaming.errors import AnotherControl, LeaseExpired, RebalancerError

log = structlog.get_logger()

ANNOUNCED_BEFORE_MS = 2_000
"""How long a new marker is on the cluster before the first change, ms: by then every broker's metadata shows the
marker.
"""


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
        self._writing = False
        lease.before_change = self._before_change

    def hold(self) -> bool:
        """Whether the cluster may be changed now; False while the marker is only announced.

        Raises AnotherControl while the control of other tables changes the cluster. Markers are read as often as ours
        is renewed, not at each step: a cluster may have thousands of quotas.
        """
        clock_ms = self._lease.clock()
        if self._stands and clock_ms - self._written_ms < MARKER_INTERVAL_MS:
            return True
        holder = self._holder
        markers = self._cluster.markers()
        ours = [marker for marker in markers if marker.identity == holder.identity]
        others = self._watch.alive(markers, holder, clock_ms=clock_ms)
        if others and (self._own is None or not ours or others[0].identity < holder.identity):
            self.release()
            raise AnotherControl(self._explained(others[0]))
        if self._own is None or not ours:
            self._announce(ours, clock_ms)
        if clock_ms - self._written_ms >= MARKER_INTERVAL_MS:
            self._write(replace(self._own_marker(), renewed_ms=self._lease.wall_clock()), markers, clock_ms)
        self._stands = clock_ms - self._announced_ms >= ANNOUNCED_BEFORE_MS
        return self._stands

    def release(self) -> None:
        """Releases the marker, as nothing is under way: the marker stays as the last one that changed the cluster. A
        failure is only logged.
        """
        own, self._own, self._stands = self._own, None, False
        if own is None:
            return
        try:
            self._put(replace(own, is_released=True))
        except RebalancerError as error:
            log.warning("marker_not_released", error=str(error))

    @property
    def _holder(self) -> Holder:
        assert self._lease.holder is not None, "only the holder of a lease asks"
        return self._lease.holder

    def _before_change(self) -> None:
        """A turn that takes long must not change the cluster with a marker that others take for stale by now. What is
        cleared up after the end has no marker: it may be in the way of what another does by now.
        """
        if self._writing:
            return
        if self._own is not None:
            if not self.hold():
                raise LeaseExpired("the marker on the cluster was gone and has just been written anew")
            return
        others = self._watch.alive(self._cluster.markers(), self._holder, clock_ms=self._lease.clock())
        if others:
            raise AnotherControl(self._explained(others[0]))

    def _explained(self, other: Marker) -> str:
        if other.lease_id != self._holder.lease_id:
            return (
                f"{other} changes this cluster: it has other tables than {self._lease.root}. Stop one of the two; "
                "`rebalancer check` shows the markers"
            )
        return (
            f"{other} changes this cluster and has the same lease as {self._lease.root}: one of the two folders is a "
            "copy, or that process has just ended. This control continues once that marker no longer changes. If one "
            "folder is a copy, stop one of the two controls; `rebalancer check` shows the markers"
        )

    def _announce(self, ours: list[Marker], clock_ms: int) -> None:
        """A marker that this process has held for long stands long enough; that of a former holder does not count."""
        now_ms, holder = self._lease.wall_clock(), self._holder
        self._own = Marker(holder.lease_id, owner(), now_ms, now_ms, holder_id=holder.holder_id)
        self._written_ms = clock_ms - MARKER_INTERVAL_MS
        stood = any(not marker.is_released for marker in ours)
        self._announced_ms = clock_ms - ANNOUNCED_BEFORE_MS if stood else clock_ms

    def _own_marker(self) -> Marker:
        assert self._own is not None
        return self._own

    def _write(self, marker: Marker, markers: tuple[Marker, ...], clock_ms: int) -> None:
        """Markers that nobody renews any more go with it, so that one stays on a cluster at rest."""
        holder = self._holder
        alive = self._watch.alive(markers, holder, clock_ms=clock_ms)
        replaced = [row for row in markers if row not in alive]
        for row in replaced:
            if row.lease_id != holder.lease_id or row.holder_id not in (holder.holder_id, holder.replaced_id):
                log.warning(
                    "marker_replaced",
                    owner=row.owner,
                    lease_id=row.lease_id,
                    released=row.is_released,
                    copied_tables=row.lease_id == holder.lease_id,
                )
        self._put(marker, replaced)
        self._own, self._written_ms = marker, clock_ms

    def _put(self, marker: Marker, replaced: Collection[Marker] = ()) -> None:
        self._writing = True
        try:
            self._cluster.write_marker(marker, replaced)
        finally:
            self._writing = False
