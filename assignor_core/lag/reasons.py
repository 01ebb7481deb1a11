"""Why a verdict was given, in one line with the figure that shows it. Words only; the verdict is given elsewhere."""

from dataclasses import dataclass

from assignor_core.lag.figures import LagPolicy
from assignor_core.lag.verdicts import LagStatus
from assignor_core.wording import many

KNOWN_MIN = LagPolicy().completeness_min


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """What a reason names of one partition; None where unknown."""

    lag_records: int | None
    lag_seconds: float | None
    stuck_seconds: float
    rewound_records: int
    consumed_per_sec: float | None
    produced_per_sec: float | None
    client_id: str | None
    left_over: bool
    completeness: float
    is_shared: bool = False
    """Whether the group is a share group (KIP-932), whose members have every partition together."""
    shared_by: int | None = None
    """Members of the share group."""
    has_steady_rates: bool = True
    """Whether rates show when the lag will be gone, as those of a consumer that commits rarely do not."""
    beyond_records: int | None = 0
    """By how much the committed offset is above the log end; None where one sample alone shows that it is."""
    deleted_records: int = 0
    """Records that were deleted in the look-back before they were read."""
    below_start_records: int = 0
    """Records between the committed offset and the log start: they are deleted, and were not read."""
    marker_records: int = 0
    """Records that wait and are taken for transaction markers."""
    held_back_records: int = 0
    """Records that wait for an open transaction to end."""
    uncommitted_seconds: float = 0.0
    """For how long at least nothing is committed although records arrive."""
    rebalancing_seconds: float = 0.0
    """For how long the group has been in the middle of a rebalance."""
    has_members_unknown: bool = False
    """Neither members nor a state of the group are shown."""
    orphaned: bool = False
    """Members of the group own other partitions of the topic, and nobody owns this one."""
    is_owned: bool = True
    """Whether a member was seen to own it: a group in a rebalance has members, and nobody owns anything."""
    is_compacted: bool = False
    """Whether the topic is compacted, so that its lag is a number of offsets and not of records."""

    @property
    def catch_up_seconds(self) -> float | None:
        """Seconds until there is no lag, at the rates of the look-back; None where the group doesn't catch up."""
        if self.lag_records is None or self.consumed_per_sec is None or self.produced_per_sec is None:
            return None
        if self.lag_records and not self.has_steady_rates:
            return None
        if self.lag_records == 0:
            return 0.0
        gained = self.consumed_per_sec - self.produced_per_sec
        return self.lag_records / gained if gained > 0 else None


def reason(status: LagStatus, at_once: LagStatus, figures: PartitionFigures) -> str:
    """One line; `at_once` is the verdict of the newest evaluation alone, which the verdict has to hold against.

    >>> figures = PartitionFigures(900, 42.0, 180.0, 0, 0.0, 20.0, None, False, 1.0)
    >>> reason(LagStatus.STOP, LagStatus.STOP, figures)
    '900 records wait, no commit for 3 min, and no member owns it'
    """
    match status:
        case LagStatus.UNKNOWN:
            return _unknown(figures)
        case LagStatus.WARN if figures.deleted_records:
            was_read = "it was read" if figures.deleted_records == 1 else "they were read"
            return f"{_deleted(figures.deleted_records)} before {was_read}; {_left(figures)}"
        case LagStatus.WARN:
            return f"{_waiting(figures)} behind, {_rates(figures)}"
        case LagStatus.STOP | LagStatus.STALL:
            return _not_read(status, figures)
        case LagStatus.REWIND:
            return f"set back by {many(figures.rewound_records, 'record')}, {figures.lag_records or 0:,} to read again"
        case LagStatus.OK:
            return _well(at_once, figures)


def duration(seconds: float) -> str:
    """Duration for people, rounded.

    >>> duration(42.4), duration(180), duration(9_000), duration(200_000)
    ('42 s', '3 min', '2.5 h', '2.3 d')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def _not_read(status: LagStatus, figures: PartitionFigures) -> str:
    """Why nothing is read: what is certain before what is only seen."""
    if figures.beyond_records:
        return (
            f"committed {many(figures.beyond_records, 'record')} beyond the log end: the topic was made again or lost "
            "records, and what is written below is not read"
        )
    if figures.uncommitted_seconds and figures.lag_records is None:
        since = duration(figures.uncommitted_seconds)
        if status is LagStatus.STALL:
            return f"records arrive, and nothing was ever committed in {since}, though {_owner(figures)}"
        return f"records arrive, and for {since} no member has owned it: members do not know of it yet"
    if figures.held_back_records:
        since = duration(figures.stuck_seconds)
        return f"an open transaction holds {many(figures.held_back_records, 'record')} back, no commit for {since}"
    if figures.rebalancing_seconds:
        return f"{_stuck(figures)}: the group is rebalancing for {duration(figures.rebalancing_seconds)}"
    if status is LagStatus.STOP:
        return f"{_stuck(figures)}, and {'the group has no member' if figures.is_shared else 'no member owns it'}"
    return f"{_stuck(figures)}, though {_owner(figures)}"


def _well(at_once: LagStatus, figures: PartitionFigures) -> str:
    if at_once > LagStatus.UNKNOWN:
        return f"{_wait(figures)}; {at_once.label} if it lasts another window"
    if at_once is LagStatus.UNKNOWN and figures.lag_records is None:
        return "the lag is not known now; unknown if it lasts another window"
    return _left(figures)


def _left(figures: PartitionFigures) -> str:
    """Text on the records that wait to be read."""
    if not figures.lag_records:
        deleted = figures.below_start_records
        return f"nothing to read; {_deleted(deleted)} unread" if deleted else "nothing to read"
    is_marker = figures.lag_records <= figures.marker_records and not figures.held_back_records
    if is_marker and not figures.produced_per_sec:
        offsets = "the last offset" if figures.lag_records == 1 else f"the last {figures.lag_records:,} offsets"
        return f"nothing to read, as it seems: transaction markers take {offsets}"
    left = figures.catch_up_seconds
    caught_up = f", caught up in {duration(left)}" if left else ""
    return f"{_wait(figures)}{caught_up}"


def _unknown(figures: PartitionFigures) -> str:
    if figures.beyond_records is None:
        return "committed beyond the log end, as one sample shows it"
    if figures.lag_records is None and figures.orphaned:
        return "no member owns it, and nothing is committed yet"
    if figures.has_members_unknown and figures.lag_records and figures.completeness >= KNOWN_MIN:
        return f"{_stuck(figures)}; whether a member owns it is unknown"
    if figures.left_over:
        return "offsets of a topic that the group no longer subscribes"
    if figures.lag_records is None:
        return "nothing read yet, or the lag is not known" if figures.is_shared else "nothing committed yet"
    return f"{_wait(figures)}; seen for {figures.completeness:.0%} of the look-back only"


def _stuck(figures: PartitionFigures) -> str:
    since = duration(figures.stuck_seconds)
    how_long = f"none acknowledged for {since}" if figures.is_shared else f"no commit for {since}"
    return f"{_wait(figures)}, {how_long}"


def _owner(figures: PartitionFigures) -> str:
    if not figures.is_shared:
        return f"{figures.client_id or 'a member'} owns it" if figures.is_owned else "the group has members"
    return (
        "the group has members" if figures.shared_by is None else f"the group's members ({figures.shared_by}) share it"
    )


def _waiting(figures: PartitionFigures) -> str:
    waited = "" if figures.lag_seconds is None else f" ({duration(figures.lag_seconds)})"
    return f"{_lag(figures)}{waited}"


def _lag(figures: PartitionFigures) -> str:
    return many(figures.lag_records or 0, "offset" if figures.is_compacted else "record")


def _wait(figures: PartitionFigures) -> str:
    return f"{_lag(figures)} {'waits' if figures.lag_records == 1 else 'wait'}"


def _deleted(records: int) -> str:
    return f"{many(records, 'record')} {'was' if records == 1 else 'were'} deleted"


def _rates(figures: PartitionFigures) -> str:
    """Text on the rates at which the group reads and records are written.

    >>> figures = PartitionFigures(900, 42.0, None, 1, None, 20.0, None, False, 1.0)
    >>> reason(LagStatus.WARN, LagStatus.WARN, figures)
    '900 records (42 s) behind, how fast it reads is unknown, 20/s arrive'
    """
    read, written = figures.consumed_per_sec, figures.produced_per_sec
    arriving = "unknown" if written is None else f"{written:,.0f}/s"
    return f"how fast it reads is unknown, {arriving} arrive" if read is None else f"reads {read:,.0f}/s of {arriving}"
