"""Log dirs above the fill level, which need a plan of movements within their broker."""

from assignor_core.disks import LogDirDescription, LogDirs
from assignor_core.log_dirs.planning import FillPolicy, is_over
from assignor_core.wording import first_named

NAMED_MAX = 5


def full_log_dirs(log_dirs: LogDirs, fill_max: float) -> list[tuple[int, LogDirDescription]]:
    """(broker, log dir) above the fill level, the fullest first; brokers with one log dir are left out."""
    over = [
        (broker, row)
        for broker, rows in sorted(log_dirs.items())
        if len(rows) > 1
        for row in rows
        if is_over(row, fill_max)
    ]
    return sorted(over, key=lambda item: (-(item[1].used_share or 0.0), item[0], item[1].path))


def full_in_words(log_dirs: LogDirs, policy: FillPolicy | None) -> str | None:
    """Log dirs above the fill level, for people; None where there are none, or nobody wants to know.

    >>> rows = [LogDirDescription("/a", 1000, 50), LogDirDescription("/b", 1000, 900)]
    >>> full_in_words({2: rows}, FillPolicy())
    'log dirs above 85%: /a of broker 2 (95%)'
    """
    over = full_log_dirs(log_dirs, policy.fill_max) if policy is not None else []
    if policy is None or not over:
        return None
    named = first_named(over, NAMED_MAX, lambda item: f"{item[1].path} of broker {item[0]} ({item[1].used_share:.0%})")
    return f"log dirs above {policy.fill_max:.0%}: {named}"
