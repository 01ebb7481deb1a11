"""Planted faults by which something of one cluster crosses to another one of the same process; `clusters` catches them.

Each begins afresh for each run of a story, so that what a cluster does alone is what it does with the fault alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streaming.control import cluster_snapshot, run, wiring
from streaming.control.lease import Lease
from streaming.settings import Settings
from tests.simulation.clusters import CLUSTERS, NOTHING_CROSSES, ROOT, run_clusters_story
from tests.simulation.planted import Planted


@dataclass(frozen=True, slots=True)
class Crossing(Planted):
    """One thing that the clusters of a process share by mistake."""

    def caught_by(self, seed: int) -> bool:
        """Whether the deployment of this seed shows it."""
        return any(row.invariant == NOTHING_CROSSES for row in run_clusters_story(seed, self.planted).broken)


def _made_once(make: Any) -> Any:
    """What is made for the first cluster serves the others, too."""
    made: list[Any] = []

    def once(*arguments: Any, **named: Any) -> Any:
        if not made:
            made.append(make(*arguments, **named))
        return made[0]

    return once


def _of_first_client(make: Any) -> Any:
    """All parts work on the client of the first cluster."""
    clients: list[Any] = []

    def wrong(client: Any, *arguments: Any, **named: Any) -> Any:
        clients.append(client)
        return make(clients[0], *arguments, **named)

    return wrong


def _asks_first_lease(check: Any) -> Any:
    leases: list[Lease] = []

    def wrong(own: Lease) -> None:
        leases.append(own)
        check(leases[0])

    return wrong


def _with(section: str, key: str, value: str) -> Callable[[Any], Any]:
    """The part is made from settings that have another value."""

    def altered(settings: Settings) -> Settings:
        other = getattr(settings, section).model_copy(update={key: value})
        return settings.model_copy(update={section: other})

    return lambda make: lambda settings: make(altered(settings))


def _lease_in_shared_root(post_init: Any) -> Any:
    def wrong(own: Lease) -> None:
        own.root = ROOT
        post_init(own)

    return wrong


CROSSINGS = (
    Crossing("leases are in the root that clusters share", "11", Lease, "__post_init__", _lease_in_shared_root, 1),
    Crossing(
        "the journal is in the root that clusters share", "11", run, "journal_of", _with("storage", "tables", ROOT), 1
    ),
    Crossing(
        "rows bear the name of another cluster", "11", run, "journal_of",
        _with("kafka", "cluster_name", CLUSTERS[0]), 1,
    ),
    Crossing("one lease is asked for all clusters", "11", Lease, "check", _asks_first_lease, 1),
    Crossing("one client executes for all clusters", "11", run, "executors_of", _of_first_client, 1),
    Crossing("one client is read for all clusters", "11", cluster_snapshot, "ClusterSnapshot", _made_once, 1),
    Crossing("windows of one cluster are stored for all", "11", run, "ClosedWindows", _made_once, 5),
    Crossing("one decider decides for all clusters", "11", run, "decider_of", _made_once, 1),
    Crossing("rates of throttles are those of another cluster", "11", wiring, "rates_of", _made_once, 1),
    Crossing("one marker stands for all clusters", "11", run, "ClusterMarker", _made_once, 1),
)  # fmt: skip
