"""The live cluster, for commands that look at it and change nothing without a lease."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streaming.settings import Settings

if TYPE_CHECKING:
    from streaming.cluster.ports import ControlledCluster


@contextmanager
def live_cluster(settings: Settings) -> "Iterator[ControlledCluster]":
    """The cluster of the settings; raises ClusterUnreachable, AnotherCluster."""
    from streaming.cluster.clients import admin_client
    from streaming.control.identity import cluster_of

    admin = admin_client(settings.kafka)
    try:
        yield cluster_of(admin, settings)
    finally:
        admin.close()
