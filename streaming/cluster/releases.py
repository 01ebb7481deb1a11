"""Which release of Kafka each broker runs, and what its release can't show: read off the answers to ApiVersions.

A broker names no release. Its highest `metadata.version` (KIP-584) belongs to one; a broker without that feature is
older than 3.3 or has ZooKeeper as its controller.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka.protocol.metadata import ApiVersionsRequest

from streaming.cluster.answers import brokers_alive, raise_error, translated
from streaming.cluster.group_messages import (
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from streaming.cluster.kafka_python_patches import PatchedAdminClient

METADATA_VERSION = "metadata.version"
HIGHEST_LEVELS = {
    "3.3": 7, "3.4": 8, "3.5": 11, "3.6": 14, "3.7": 19, "3.8": 20, "3.9": 21, "4.0": 25, "4.1": 27, "4.2": 29,
    "4.3": 30, "4.4": 33,
}  # fmt: skip
"""The highest metadata.version of each release, oldest first. Source: Kafka's `MetadataVersion`."""
OLDEST, NEWEST = "3.9", "4.4"
"""Releases that tests run: the oldest that is supported, and the newest that was tried."""
NAMED_MAX = 5

DESCRIBE_LOG_DIRS = 35


@dataclass(frozen=True, slots=True)
class Feature:
    """What needs a request of some version, and the release of Kafka that brought it."""

    name: str
    api_key: int
    version: int
    since: str


FEATURES = (
    Feature("members of consumer groups (KIP-848)", ConsumerGroupDescribeRequest.API_KEY, 0, "4.0"),
    Feature("members of share groups (KIP-932)", ShareGroupDescribeRequest.API_KEY, 1, "4.1"),
    Feature("lag of share groups", DescribeShareGroupOffsetsRequest.API_KEY, 1, "4.2"),
    Feature("members of streams groups (KIP-1071)", StreamsGroupDescribeRequest.API_KEY, 0, "4.2"),
    Feature("cordoned log dirs (KIP-1066)", DESCRIBE_LOG_DIRS, 5, "4.3"),
)


@dataclass(frozen=True, slots=True)
class BrokerRelease:
    """One broker: release such as "4.4", None where it is older than any that is known; versions by key of request."""

    release: str | None
    api_versions: Mapping[int, int]
    """Highest version by key."""
    is_newer: bool = False
    """The broker knows a metadata.version above those of `release`, the newest release that is known here."""

    @property
    def name(self) -> str:
        """Name of the release for people."""
        if self.release is None:
            return "an unknown release"
        return f"a release after {self.release}" if self.is_newer else self.release

    @property
    def is_supported(self) -> bool:
        """Whether the broker is no older than the oldest release that tests run."""
        releases = list(HIGHEST_LEVELS)
        return self.release is not None and releases.index(self.release) >= releases.index(OLDEST)

    def lacks(self, feature: Feature) -> bool:
        """Whether the broker does not know the request that the feature needs."""
        return self.api_versions.get(feature.api_key, -1) < feature.version


def broker_releases(admin: PatchedAdminClient) -> dict[int, BrokerRelease]:
    """Release by broker, of those that are alive; raises ClusterUnreachable, ClusterRequestFailed."""
    with translated("show the versions of its requests", role="control"):
        return {broker: _release_of(admin, broker) for broker in brokers_alive(admin)}


def release_of_level(level: int | None) -> tuple[str | None, bool]:
    """The release whose brokers know metadata versions up to `level`, and whether it is a newer one than is known.

    >>> release_of_level(21), release_of_level(22), release_of_level(99), release_of_level(None)
    (('3.9', False), ('4.0', False), ('4.4', True), (None, False))
    """
    if level is None:
        return None, False
    place = bisect_left(list(HIGHEST_LEVELS.values()), level)
    is_newer = place == len(HIGHEST_LEVELS)
    return list(HIGHEST_LEVELS)[place - is_newer], is_newer


def release_finding(releases: Mapping[int, BrokerRelease]) -> tuple[bool, str]:
    """Whether every broker runs a release that is supported; else which ones do not, in one line."""
    tried = f"{OLDEST} and {NEWEST} are tested"
    old = {broker: row for broker, row in releases.items() if not row.is_supported}
    if old:
        named = "; ".join(f"broker {broker} runs {row.name}" for broker, row in sorted(old.items())[:NAMED_MAX])
        rest = f" and {len(old) - NAMED_MAX} more" if len(old) > NAMED_MAX else ""
        unknown = " (before 3.3, or with ZooKeeper)" if any(row.release is None for row in old.values()) else ""
        return False, f"{named}{rest}{unknown}: {OLDEST} is the oldest that is supported"
    return True, f"brokers run {' and '.join(sorted({row.name for row in releases.values()}))}; {tried}"


def missing_features(releases: Iterable[BrokerRelease]) -> list[Feature]:
    """Features that at least one broker lacks: a group may be coordinated by any of them."""
    known = list(releases)
    return [feature for feature in FEATURES if any(row.lacks(feature) for row in known)]


def _release_of(admin: PatchedAdminClient, broker: int) -> BrokerRelease:
    answer = admin.ask_broker(broker, ApiVersionsRequest("rebalancer", "1", min_version=3))
    raise_error(answer)
    levels = {row.name: row.max_version for row in answer.supported_features or ()}
    release, is_newer = release_of_level(levels.get(METADATA_VERSION))
    return BrokerRelease(release, {row.api_key: row.max_version for row in answer.api_keys}, is_newer)
