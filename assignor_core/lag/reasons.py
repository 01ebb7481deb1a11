"""Why a verdict was given, in one line with the figure that shows it. Words only; the verdict is given elsewhere."""

from dataclasses import dataclass

from assignor_core.lag.verdicts import LagStatus


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

    @property
    def catch_up_seconds(self) -> float | None:
        """Until there is no lag, at the rates of the look-back; None where it isn't being caught up."""
        if self.lag_records is None or self.consumed_per_sec is None or self.produced_per_sec is None:
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
        case LagStatus.WARN:
            rates = f"{_rate(figures.consumed_per_sec)} of {_rate(figures.produced_per_sec)}"
            return f"{_waiting(figures)} behind, reads {rates}"
        case LagStatus.STOP:
            return f"{_stuck(figures)}, and {'the group has no member' if figures.is_shared else 'no member owns it'}"
        case LagStatus.STALL:
            return f"{_stuck(figures)}, though {_owner(figures)}"
        case LagStatus.REWIND:
            return (
                f"set back by {figures.rewound_records:,} records, {figures.lag_records or 0:,} to read again or anew"
            )
        case LagStatus.OK:
            return _well(at_once, figures)


def duration(seconds: float) -> str:
    """For people, rounded.

    >>> duration(42.4), duration(180), duration(9_000), duration(200_000)
    ('42 s', '3 min', '2.5 h', '2.3 d')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def _well(at_once: LagStatus, figures: PartitionFigures) -> str:
    if at_once > LagStatus.UNKNOWN:
        return f"{figures.lag_records:,} records wait; {at_once.label} if it lasts another window"
    if not figures.lag_records:
        return "nothing to read"
    left = figures.catch_up_seconds
    caught_up = f", caught up in {duration(left)}" if left else ""
    return f"{figures.lag_records:,} records wait{caught_up}"


def _unknown(figures: PartitionFigures) -> str:
    if figures.left_over:
        return "offsets of a topic that the group no longer subscribes"
    if figures.lag_records is None:
        return "nothing read yet, or the lag is not known" if figures.is_shared else "nothing committed yet"
    return f"{figures.lag_records:,} records wait; seen for {figures.completeness:.0%} of the look-back only"


def _stuck(figures: PartitionFigures) -> str:
    since = duration(figures.stuck_seconds)
    how_long = f"none acknowledged for {since}" if figures.is_shared else f"no commit for {since}"
    return f"{figures.lag_records or 0:,} records wait, {how_long}"


def _owner(figures: PartitionFigures) -> str:
    if not figures.is_shared:
        return f"{figures.client_id or 'a member'} owns it"
    return (
        "the group has members" if figures.shared_by is None else f"the group's members ({figures.shared_by}) share it"
    )


def _waiting(figures: PartitionFigures) -> str:
    waited = "" if figures.lag_seconds is None else f" ({duration(figures.lag_seconds)})"
    return f"{figures.lag_records or 0:,} records{waited}"


def _rate(per_sec: float | None) -> str:
    return "unknown" if per_sec is None else f"{per_sec:,.0f}/s"
