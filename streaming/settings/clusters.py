"""Several clusters in one deployment: what each cluster may have of its own, and what two clusters must not share.

A settings file names clusters below `clusters`. Each cluster has sections with the keys of the sections at the top of
the file, which hold for every cluster that does not set the key itself. Tables and checkpoints of a cluster are in
folders of its own, so that no lease, journal row, window or checkpoint of one cluster can meet that of another.
`streaming.config` puts the sections together; each cluster then has whole settings of the kind that one cluster alone
has.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from pydantic import Field

from streaming.settings import (
    CollectSettings,
    ControlSettings,
    KafkaSettings,
    LagSettings,
    PlannerSettings,
    Section,
    Settings,
    TopicSettings,
    TriggerSettings,
)
from streaming.settings.fields import Location, path_of, split_uri

CLUSTERS_MAX = 100
NAME = re.compile(r"(?=.{1,100}$)[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*", re.ASCII)
FOLDER = "clusters"
"""Folder below `storage.tables` and `storage.checkpoints` in which each cluster has a folder of its own."""


PAUSED: bool = Field(
    False,
    description="Whether nothing of the cluster runs: no collect, no control, no part of the pipeline. serve still "
    "shows its tables.",
)

PAUSED_MODE = "paused"
"""The mode that is shown of a paused cluster, in the place of `control.mode`."""


class ClusterStorage(Section):
    """The places of one cluster's tables and checkpoints."""

    tables: Location | None = Field(
        None,
        min_length=1,
        description="The folder (or URI) of the cluster's tables; null: clusters/NAME below the shared storage.tables.",
    )
    checkpoints: Location | None = Field(
        None,
        min_length=1,
        description="The folder (or URI) of the cluster's checkpoints; null: clusters/NAME below the shared ones.",
    )


class ClusterSettings(Section):
    """What one of several clusters may have of its own."""

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()
    storage: ClusterStorage = ClusterStorage()
    collect: CollectSettings = CollectSettings()
    trigger: TriggerSettings = TriggerSettings()
    planner: PlannerSettings = PlannerSettings()
    control: ControlSettings = ControlSettings()
    lag: LagSettings = LagSettings()
    paused: bool = PAUSED


class NamedClusterSettings(Settings):
    """Whole settings of a cluster that the settings file names."""

    paused: bool = PAUSED


class DeploymentSettings(Settings):
    """The shape of a settings file: settings of one cluster, or of several with what they share."""

    clusters: dict[str, ClusterSettings] = Field(
        default={}, description="name: sections of one of several clusters, which override those at the top."
    )


def is_paused(settings: Settings) -> bool:
    """Returns whether nothing of this cluster is to run. Only a cluster that the settings file names can be paused."""
    return isinstance(settings, NamedClusterSettings) and settings.paused


def spelling_in_environment(name: str) -> str:
    """Returns the name of a cluster as a variable of the environment has it.

    >>> spelling_in_environment("eu-west.1")
    'EU_WEST_1'
    """
    return re.sub(r"[._-]", "_", name).upper()


def own_place(shared: str, name: str) -> str:
    """Returns the place of a cluster below a shared folder or URI.

    >>> own_place("s3://bucket/tables/", "east")
    's3://bucket/tables/clusters/east'
    """
    return f"{shared.rstrip('/')}/{FOLDER}/{name}"


def name_problems(names: Iterable[str]) -> Iterator[str]:
    """Yields what is wrong with these names of clusters, a line for each problem."""
    spellings: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        if not NAME.fullmatch(name):
            yield (
                f"clusters: {name!r} is no name of a cluster; allowed are letters and digits in parts that a single "
                "point, hyphen or underscore separates, at most 100 characters"
            )
        other = spellings.setdefault(spelling_in_environment(name), name)
        if other != name:
            yield f"clusters: {other!r} and {name!r} differ in capitals or signs alone; give one another name"
        if number == CLUSTERS_MAX + 1:
            yield f"clusters: at most {CLUSTERS_MAX} clusters are allowed"


def conflicts(clusters: Mapping[str, Settings]) -> Iterator[str]:
    """Yields what two clusters have in common and must not, a line for each such value."""
    owners: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, settings in clusters.items():
        for key_and_value in _own_values(settings):
            owners[key_and_value].append(name)
    for (key, value), names in owners.items():
        if len(names) > 1:
            shown = "the same" if "@" in value else repr(value)  # a login may stand in it
            yield (
                f"clusters {', '.join(names)}: {key} is {shown} for each of them; each cluster needs its own, as "
                f"clusters.NAME.{key}"
            )


def _own_values(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields key and value of what no other cluster may have."""
    kafka, storage = settings.kafka, settings.storage
    for server in sorted({server.lower() for server in kafka.bootstrap_servers}):
        yield "kafka.bootstrap_servers", server
    if kafka.cluster_id is not None:
        yield "kafka.cluster_id", kafka.cluster_id
    for url in sorted(map(str, set(settings.collect.jmx_endpoints.values()))):
        yield "collect.jmx_endpoints", url
    yield "storage.tables", one_spelling(storage.tables)
    yield "storage.checkpoints", one_spelling(storage.checkpoints)


def one_spelling(place: str) -> str:
    """Returns a place, however it was spelled: a folder by its path, which a URI may spell, too.

    >>> one_spelling("/srv/tables/"), one_spelling("//srv/./tables"), one_spelling("S3A://bucket/tables/")
    ('/srv/tables', '/srv/tables', 's3://bucket/tables')
    >>> one_spelling("file:///srv/our%20tables"), one_spelling("file://localhost/srv/our%20tables/")
    ('/srv/our tables', '/srv/our tables')
    """
    path, uri = path_of(place), split_uri(place)
    if path is not None:
        return posixpath.normpath(path).replace("//", "/")  # POSIX lets two slashes at the beginning stay
    assert uri is not None  # what is no URI is a path
    scheme, rest = uri
    return f"{'s3' if scheme == 's3a' else scheme}:{rest.rstrip('/')}"
