"""Brokers with replicas that have been offline, and since when: for these an execution may wait in vain.

While a broker is away, partitions are under-replicated, so an execution submits nothing. In mode `apply` only a plan of
its own makes what a failed broker held anew, and that plan waits until the execution under way has ended.
"""

from collections.abc import Collection, Iterable, Mapping

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, too_many_away

GAP_MAX_MS = 300_000
"""How long control may go without a snapshot before nobody knows whether a broker was offline all the time, ms."""


class Absences:
    """Records the brokers that are offline and since when, from the snapshots of the cluster that this process has
    read. A process that starts knows none.
    """

    def __init__(self, grace_ms: int | None = None, max_away_share: float = 0.0) -> None:
        """A broker has failed once it has been offline for `grace_ms`. With None no replicas are re-created, so no
        execution ends for a failed broker. No execution ends for one either if a larger share of brokers than
        `max_away_share` is offline.
        """
        self._grace_ms = grace_ms
        self._max_away_share = max_away_share
        self._since_ms: dict[int, int] = {}
        self._read_ms = 0

    def note(self, live: LiveCluster, now_ms: int) -> None:
        """Notes the brokers that are offline in one more snapshot. The snapshot may show a part of the partitions: a
        broker noted before stays offline until it is back.
        """
        known = self.since_ms(now_ms)
        away = live.hosts_away() | (known.keys() - live.broker_racks.keys())
        # A clock that was set back has left times ahead of it: no broker would fail until real time is there.
        self._since_ms = {broker: min(known.get(broker, now_ms), now_ms) for broker in away}
        self._read_ms = now_ms

    def since_ms(self, now_ms: int) -> Mapping[int, int]:
        """When each broker that was away at the newest snapshot was first seen so; none where that snapshot is long
        ago.
        """
        return {} if now_ms - self._read_ms > GAP_MAX_MS else self._since_ms

    def in_vain(
        self, live: LiveCluster, copies: Iterable[Collection[int]], replaced: Collection[int] = ()
    ) -> str | None:
        """Why an execution that waits would do so in vain, in words; None where it goes on, or may.

        A broker with replicas has failed that the plan has not `replaced`, and each of the `copies` under way waits for
        such a one: `copies` are the brokers that each of them needs (see `needed_by`).
        """
        failed = self._failed(live, replaced)
        if not failed or any(set(failed).isdisjoint(needed) for needed in copies):
            return None
        minutes = (self._read_ms - self._since_ms[failed[0]]) / 60_000
        return f"broker {failed[0]} has been offline for {minutes:.0f} min: its replicas are re-created first"

    def _failed(self, live: LiveCluster, replaced: Collection[int]) -> tuple[int, ...]:
        if self._grace_ms is None or not self._since_ms:
            return ()
        away = live.hosts_away()
        if too_many_away(len(away), len(live.broker_racks), self._max_away_share) is not None:
            return ()
        since_ms = self._read_ms - self._grace_ms
        return tuple(
            sorted(row for row in away.difference(replaced) if self._since_ms.get(row, since_ms + 1) <= since_ms)
        )


def needed_by(partition: LivePartition) -> tuple[int, ...]:
    """Brokers that a reassignment waits for: those that receive, or, once these are in sync, those that stay and are
    not; all that hold a replica while none of them leads, as then there is nothing to copy from.

    >>> needed_by(LivePartition((3, 1, 2), 1, (1, 2), adding_replicas=(3,), removing_replicas=(2,)))
    (3,)
    >>> needed_by(LivePartition((3, 1), NO_LEADER, (), adding_replicas=(3,), removing_replicas=(1,)))
    (3, 1)
    >>> needed_by(LivePartition((3, 2, 1), 1, (1, 3), adding_replicas=(3,), removing_replicas=(1,)))
    (2,)
    """
    if partition.leader == NO_LEADER:
        return partition.replicas
    return partition.awaited_replicas or partition.adding_replicas
