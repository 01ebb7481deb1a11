"""Derives the roles that run from the settings of all clusters, and what a change of the settings does to each role.

Everything here is a pure function of settings. A cluster that the settings file does not name is the only one; its
roles are those of no named cluster.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streaming.settings import Settings
from streaming.settings.clusters import ClusterSettings, ClusterStorage, NamedClusterSettings, is_paused

ROLES = ("collect", "pipeline", "control", "serve")
OF_ONE_CLUSTER = frozenset({"collect", "control"})
"""Roles that work for one cluster, or for those that share a process; the others work for all clusters in one."""
READ_BY = {
    "collect": frozenset({"kafka", "topics", "storage", "collect", "pipeline", "log"}),
    "pipeline": frozenset({"kafka", "topics", "storage", "pipeline", "log"}),
    "control": frozenset(Settings.model_fields) - {"serve", "notify"},
    "serve": frozenset(NamedClusterSettings.model_fields),
}
"""The sections that a role reads, each with what it has of the cluster and what it shares with other clusters."""

Clusters = Mapping[str, Settings]
"""The settings of all clusters, by name."""
Adjust = Callable[[Clusters], None]
"""Starts and ends what a process does for single clusters, so that it does what these settings say."""
AdjustBy = Callable[[Adjust], None]
"""Is given what takes changed clusters; that is called in another thread than the main one."""


@dataclass(frozen=True, slots=True)
class RoleOf:
    """A role, and the cluster that it works for if it works for one of several."""

    role: str
    cluster: str | None = None

    @property
    def name(self) -> str:
        """The role, with the cluster where it works for one of several."""
        return self.role if self.cluster is None else f"{self.role}-{self.cluster}"


@dataclass(frozen=True, slots=True)
class RoleChanges:
    """What becomes of the roles as settings change. A role that is nowhere here runs on untouched."""

    started: tuple[RoleOf, ...] = ()
    ended: tuple[RoleOf, ...] = ()
    restarted: tuple[RoleOf, ...] = ()
    adjusted: tuple[RoleOf, ...] = ()
    """Roles of all clusters that start and end the parts of some clusters, and leave the parts of the others alone."""
    shared_sections: tuple[str, ...] = ()
    """Sections that hold for all clusters and have changed: all roles restart that read one of them."""

    def __bool__(self) -> bool:
        return bool(self.started or self.ended or self.restarted or self.adjusted)


def are_several(clusters: Clusters) -> bool:
    """Returns whether there is more than one cluster: then each has pages of serve below its name."""
    return len(clusters) > 1


def active(clusters: Clusters) -> dict[str, Settings]:
    """Returns the clusters that are not paused."""
    return {name: settings for name, settings in clusters.items() if not is_paused(settings)}


def sharing(role: str, clusters: Clusters) -> dict[str, Settings]:
    """Returns those of several clusters whose work of this role (`collect`, `control`) one process does together."""
    own = {
        name: settings.collect.own_process if role == "collect" else settings.control.own_process
        for name, settings in clusters.items()
    }
    return {name: settings for name, settings in clusters.items() if are_several(clusters) and not own[name]}


def roles_of(clusters: Clusters) -> list[RoleOf]:
    """Returns the roles that run for these settings, in the order in which they start."""
    running = active(clusters)
    found: list[RoleOf] = []
    for role in ROLES:
        if role in OF_ONE_CLUSTER and are_several(clusters):
            together = sharing(role, clusters)
            found += [RoleOf(role, name) for name in running if name not in together]
            found += [RoleOf(role)] if running.keys() & together.keys() else []
        elif running or role == "serve":
            found.append(RoleOf(role))
    return found


def changes(old: Clusters, new: Clusters) -> RoleChanges:
    """Returns what becomes of each role as `new` takes the place of `old`."""
    before, after = roles_of(old), roles_of(new)
    both = [role for role in after if role in before]
    restarted = tuple(role for role in both if must_restart(role, old, new))
    return RoleChanges(
        started=tuple(role for role in after if role not in before),
        ended=tuple(role for role in before if role not in after),
        restarted=restarted,
        adjusted=tuple(role for role in both if role not in restarted and must_adjust(role, old, new)),
        shared_sections=shared_sections(old, new),
    )


def shared_sections(old: Clusters, new: Clusters) -> tuple[str, ...]:
    """Returns the names of the changed sections, or parts of sections, that no cluster can have of its own."""
    (before, *_), (after, *_) = old.values(), new.values()
    return tuple(name for name in Settings.model_fields if _shared(name, before) != _shared(name, after))


def must_restart(role: RoleOf, old: Clusters, new: Clusters) -> bool:
    """Returns whether the process of this role, which runs before and after, has to begin anew."""
    if are_several(old) != are_several(new) or READ_BY[role.role].intersection(shared_sections(old, new)):
        return True
    is_of_all = role.cluster is None and are_several(new)
    return not is_of_all and must_adjust(role, old, new)


def must_adjust(role: RoleOf, old: Clusters, new: Clusters) -> bool:
    """Returns whether the process of a role has to start, to end or to begin anew what it does for some cluster."""
    before, after = parts_of(role, old), parts_of(role, new)
    return [*before] != [*after] or any(not reads_the_same(role.role, before[name], after[name]) for name in after)


def parts_of(role: RoleOf, clusters: Clusters) -> dict[str, Settings]:
    """Returns the clusters that the process of this role works for. serve shows paused clusters, too."""
    if role.cluster is not None:
        return {role.cluster: clusters[role.cluster]}
    if role.role in OF_ONE_CLUSTER and are_several(clusters):
        return active(sharing(role.role, clusters))
    return {**clusters} if role.role == "serve" else active(clusters)


def reads_the_same(role: str, old: Settings, new: Settings) -> bool:
    """Returns whether the role finds no difference between two settings of one cluster."""
    return all(getattr(old, name, None) == getattr(new, name, None) for name in READ_BY[role])


def _shared(section: str, settings: Settings) -> object:
    """The part of a section that holds for all clusters; None if each cluster can have all of it."""
    if section == "storage":
        own: set[str] = {*ClusterStorage.model_fields}
        return settings.storage.model_dump(exclude=own)
    return None if section in ClusterSettings.model_fields else getattr(settings, section)
