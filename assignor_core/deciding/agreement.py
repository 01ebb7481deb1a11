"""Whether brokers and the partitions that they lead report the same load: two measurements of one thing.

Figures of brokers decide that there is skew, figures of partitions decide what is moved. Where the two differ, a plan
mends a skew that is another: a rate is missing or wrong, or somebody forges samples. Bytes in are compared that clients
write, as they are what every broker and every leader reports.

Only shares are compared, as a plan evens out shares. A factor that all brokers have in common changes neither: brokers
that compress records anew, or log sizes that are estimates. This module knows no table and no plan.
"""

from collections.abc import Mapping
from math import fsum

from assignor_core.deciding.windows import ClosedWindow

LedBytesIn = Mapping[int, Mapping[int, float]]
"""Start of a window, ms: broker: bytes/s that clients write to the partitions that it leads, those that are known."""


LOAD_MIN_BYTES_PER_SEC = 100_000.0
"""Below this mean load of a broker nothing is compared: shares of next to nothing are noise."""


def load_disagreement(reported: Mapping[int, float], led: Mapping[int, float]) -> dict[int, float]:
    """By broker: what it reports less what the partitions that it leads add up to, both over the mean of all brokers.

    Figures in bytes/s. Brokers that report nothing are left out. Empty where the mean that brokers report is below
    `LOAD_MIN_BYTES_PER_SEC`.

    Broker 2 reports 1.5 mean loads, its partitions add up to one:

    >>> load_disagreement({1: 1e6, 2: 3e6}, {1: 4e6, 2: 4e6})
    {1: -0.5, 2: 0.5}
    """
    total, total_led = fsum(reported.values()), fsum(led.get(broker, 0.0) for broker in reported)
    count = len(reported)
    if total < LOAD_MIN_BYTES_PER_SEC * count:
        return {}
    return {
        broker: count * (load / total - (led.get(broker, 0.0) / total_led if total_led > 0 else 0.0))
        for broker, load in sorted(reported.items())
    }


def mean_disagreement(windows: tuple[ClosedWindow, ...], led: LedBytesIn) -> dict[int, float]:
    """The same of the means over `windows`; of each broker over those in which it reports."""
    reported: dict[int, list[float]] = {}
    of_partitions: dict[int, list[float]] = {}
    for window in windows:
        of_window = led.get(window.start_ms, {})
        for broker, load in window.client_bytes_in.items():
            reported.setdefault(broker, []).append(load)
            of_partitions.setdefault(broker, []).append(of_window.get(broker, 0.0))
    return load_disagreement(_means(reported), _means(of_partitions))


def _means(values: Mapping[int, list[float]]) -> dict[int, float]:
    return {broker: fsum(loads) / len(loads) for broker, loads in values.items()}
