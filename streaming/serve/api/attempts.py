"""A bound on wrong passwords: so many for a user and for an address, in a span of time. In memory, of this process."""

import ipaddress
from collections import OrderedDict

KEYS_MAX = 10_000
"""Users or addresses remembered; beyond, the one that tried longest ago is forgotten."""
SPAN_MS = 300_000
TOO_MANY = {"Retry-After": str(SPAN_MS // 1000)}
"""Header of an answer of 429."""
OF_USER_MAX = 10
OF_ADDRESS_MAX = 20
"""More than of a user: an address may be that of many people."""
OTHER_LENGTH_MAX = 64
"""A proxy may pass any text on as an address."""


class Attempts:
    """Attempts of the last `SPAN_MS`, by key; each is counted before it is known whether it is wrong."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[str, list[int]] = OrderedDict()

    def take(self, key: str, *, now_ms: int) -> bool:
        """Count one more; False, and nothing is counted, where there were too many."""
        times = [time for time in self._times.get(key, ()) if time > now_ms - SPAN_MS]
        is_allowed = len(times) < self._most
        self._times[key] = [*times, now_ms] if is_allowed else times
        self._times.move_to_end(key)
        if len(self._times) > KEYS_MAX:
            self._times.popitem(last=False)
        return is_allowed

    def give_back(self, key: str, *, taken_ms: int) -> None:
        """That attempt was right. Others stay counted: who knows one password must not get to guess others."""
        times = self._times.get(key, [])
        if taken_ms in times:
            times.remove(taken_ms)


def network_of(address: str) -> str:
    """What one person can choose addresses in: a single IPv4 address, the /64 of an IPv6 address.

    >>> network_of("10.0.0.1"), network_of("::ffff:10.0.0.1"), network_of("2001:db8::1:2:3:4")
    ('10.0.0.1', '10.0.0.1', '2001:db8::/64')
    """
    try:
        own = ipaddress.ip_address(address)
    except ValueError:
        return address[:OTHER_LENGTH_MAX]
    if own.version == 4:
        return str(own)
    if own.ipv4_mapped is not None:
        return str(own.ipv4_mapped)
    return str(ipaddress.ip_network((int(own) >> 64 << 64, 64)))
