"""Whether the places of several clusters may be used."""

from collections.abc import Mapping

from streaming.contract import BROKER_LOAD, LEASE
from streaming.errors import RefusedForSafety
from streaming.settings import Settings
from streaming.settings.clusters import one_spelling, own_place


def check_places(clusters: Mapping[str, Settings]) -> None:
    """Raises RefusedForSafety if the folder that clusters share is itself that of one cluster's tables, and no cluster
    is named as their owner: a deployment of one cluster would begin anew beside its old plans and leases.
    """
    from streaming import tables

    places = {name: one_spelling(settings.storage.tables) for name, settings in clusters.items()}
    shared = {
        place.removesuffix(own_place("", name)) for name, place in places.items() if place.endswith(own_place("", name))
    }
    for root in shared - {*places.values()}:
        if any(tables.open_table(root, name) is not None for name in (LEASE.name, BROKER_LOAD.name)):
            raise RefusedForSafety(
                f"storage.tables: {root} holds tables of one cluster: name this cluster by "
                f"clusters.NAME.storage.tables: {root}, and its checkpoints in the same way (docs/clusters.md)"
            )
