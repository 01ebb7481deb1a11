"""Brokers in messages for people."""

from collections.abc import Collection

from assignor_core.wording import first_named

BROKERS_SHOWN = 20


def broker_names(brokers: Collection[int]) -> str:
    """One broker or several, of many the first.

    >>> broker_names([3]), broker_names([4, 3])
    ('broker 3', 'brokers 3, 4')
    """
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {first_named(sorted(brokers), BROKERS_SHOWN)}"
