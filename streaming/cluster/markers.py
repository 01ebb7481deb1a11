"""Markers on a Kafka cluster, kept as client quotas of a client id that no client has.

A quota is the one thing that control may write with the rights that it has anyway (ALTER_CONFIGS and DESCRIBE_CONFIGS
on the cluster), that lies in the metadata log, and that needs no topic or group. Its name holds the text, its values
the times: they are so high that they would limit nobody. See docs/decisions/0032.
"""

import re
from collections.abc import Mapping
from typing import Any

from assignor_core.marker import Marker

PREFIX = "rebalancer-control"
RENEWED = "consumer_byte_rate"
"""The quota that holds when the marker was renewed, ms since 1970 UTC."""
HELD = "producer_byte_rate"
"""The quota that is there while the marker is held; the same value."""
_NAME = re.compile(
    rf"{PREFIX} lease=(?P<lease>\w+) owner=(?P<owner>[\w.:/-]+)(@(?P<holder>\w+))? since_ms=(?P<since>\d{{1,15}})",
    re.ASCII,
)
"""Earlier versions wrote no holder, and take it for a part of the owner."""


def client_id_of(marker: Marker) -> str:
    """The client id that bears the quotas of a marker.

    >>> client_id_of(Marker("5f", "host/7", 1_700_000_000_000, 0, holder_id="c4"))
    'rebalancer-control lease=5f owner=host/7@c4 since_ms=1700000000000'
    """
    holder = f"@{marker.holder_id}" if marker.holder_id else ""
    return f"{PREFIX} lease={marker.lease_id} owner={marker.owner}{holder} since_ms={marker.since_ms}"


def quotas_of(marker: Marker) -> dict[str, float | None]:
    """The quotas of a marker; None removes one."""
    return {RENEWED: float(marker.renewed_ms), HELD: None if marker.is_released else float(marker.renewed_ms)}


def marker_of(client_id: str, quotas: Mapping[str, float]) -> Marker | None:
    """The marker that a client id and its quotas stand for; None where they stand for none.

    >>> marker = Marker("5f", "host/7", 1_700_000_000_000, 1_700_000_015_000, holder_id="c4")
    >>> marker_of(client_id_of(marker), {RENEWED: 1_700_000_015_000.0, HELD: 1_700_000_015_000.0}) == marker
    True
    >>> marker_of("console-producer", {RENEWED: 1_000_000.0}) is None
    True
    """
    name = _NAME.fullmatch(client_id)
    if name is None or RENEWED not in quotas:
        return None
    return Marker(
        name["lease"], name["owner"], int(name["since"]), round(quotas[RENEWED]), HELD not in quotas,
        name["holder"] or "",
    )  # fmt: skip


def markers_on(admin: Any) -> tuple[Marker, ...]:
    """All markers, by lease and holder; raises KafkaError."""
    markers = (marker_of(name, quotas) for name, quotas in admin.client_id_quotas().items())
    return tuple(sorted((row for row in markers if row is not None), key=lambda row: (*row.identity, row.since_ms)))


def replacement(marker: Marker, replaced: tuple[Marker, ...]) -> dict[str, dict[str, float | None]]:
    """What to ask the cluster for: quotas by client id; those of markers that are `replaced` go."""
    own = client_id_of(marker)
    gone = {client_id_of(row) for row in replaced} - {own}
    return {**{name: {RENEWED: None, HELD: None} for name in sorted(gone)}, own: quotas_of(marker)}
