"""What the windows behind a plan show besides the mean rates of leaders.

- The mean rates by hour of the day. A plan on the newest windows alone follows the hour in which it is made: made by
  day it lets the topics of the night meet on one broker. So each hour of the last days is a column of the model,
  and the worst column counts.
- What followers serve to consumers. The counter of a follower's broker measures it, and reads of a follower come from
  the follower's own rack. No counter shows whom a leader serves: members of groups name their racks, and what members
  have read divides the leader's part.
- Whether brokers and the partitions that they lead report the same load. Figures of brokers decide that there is skew,
  figures of partitions decide what is moved. If the two differ, a rate is missing or wrong, or somebody forges samples.
  Only shares are compared, as a plan evens out shares: a factor that all brokers have in common changes no share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum

import numpy as np
from numpy.typing import NDArray

from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.load import NEGLIGIBLE, Floats
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.model import RATE_KEYS, Load, Partition, Rack, reader_racks

DAY_HOURS = 24
CELLS_MAX = 500_000
"""Most partitions times columns: 20,000 partitions with 25 columns take eight times the CPU time of one."""


@dataclass(frozen=True, slots=True, eq=False)
class HourlyRates:
    """Mean rates of partitions by hour of the day (UTC), over some days; N partitions, H hours."""

    hours: tuple[int, ...]
    """The H hours of which anything is known, ascending."""
    partitions: Mapping[PartitionKey, int]
    """The row of each partition."""
    rates: Floats
    """N x H x rates in the order of RATE_KEYS, per second; NaN where unknown."""
    days: int = 0
    """Over how many days at most."""


NO_HOURS = HourlyRates((), {}, np.zeros((0, 0, len(RATE_KEYS))))


def merged(hourly: HourlyRates, partitions: int, cells_max: int = CELLS_MAX) -> HourlyRates:
    """`hourly` with neighbouring hours as one, their mean, so that `partitions` stay below `cells_max` cells.

    Empty where a day would be one column: it shows no hour.

    >>> hourly = HourlyRates((0, 1, 7), {("t", 0): 0}, np.array([[[1.0, 2.0], [3.0, 2.0], [5.0, 2.0]]]))
    >>> merged(hourly, 1) is hourly
    True
    >>> half = merged(hourly, 41_000)  # columns of three hours
    >>> half.hours, half.rates[0, :, 0].tolist()
    ((0, 6), [2.0, 5.0])
    >>> merged(hourly, 400_000).hours
    ()
    """
    columns_max = cells_max // max(1, partitions) - 1
    length = next((hours for hours in (1, 2, 3, 4, 6, 8, 12) if DAY_HOURS // hours <= columns_max), None)
    if length is None:
        return NO_HOURS
    if length == 1:
        return hourly
    blocks = np.array(hourly.hours, dtype=np.int64) // length
    starts = np.unique(blocks)
    rows = [_known_mean(hourly.rates[:, blocks == block]) for block in starts]
    rates = np.stack(rows, axis=1) if rows else hourly.rates
    return HourlyRates(tuple(int(start) * length for start in starts), hourly.partitions, rates, hourly.days)


def with_hours(keys: Sequence[PartitionKey], newest: Floats, hourly: HourlyRates) -> Floats:
    """P x (1 + H) x rates: the `newest` rates (P x rates, all known) of `keys`, then those of each hour.

    What is not known of an hour, as the partition is new, is its newest rate, times what all partitions that are known
    have in that hour over what they have now.

    >>> hourly = HourlyRates((3,), {("t", 0): 0}, np.array([[[2.0, 8.0]]]))
    >>> with_hours([("t", 0), ("t", 1)], np.array([[1.0, 4.0], [5.0, 1.0]]), hourly)[:, 1].tolist()
    [[2.0, 8.0], [10.0, 2.0]]
    """
    rows: NDArray[np.int64] = np.array([hourly.partitions.get(key, -1) for key in keys], dtype=np.int64)
    by_hour = np.full((len(keys), len(hourly.hours), newest.shape[1]), np.nan)
    by_hour[rows >= 0] = hourly.rates[rows[rows >= 0]]
    now = newest[:, None, :]
    known = ~np.isnan(by_hour)
    then, today = np.where(known, by_hour, 0.0).sum(axis=0), np.where(known, now, 0.0).sum(axis=0)
    factor = np.where(today > NEGLIGIBLE, then / np.where(today > NEGLIGIBLE, today, 1.0), 1.0)
    return np.concatenate([now, np.where(known, by_hour, now * factor)], axis=1)


def _known_mean(rates: Floats) -> Floats:
    """N x rates: the mean over the hours of N x H x rates in which it is known; NaN where it never is."""
    counts = (~np.isnan(rates)).sum(axis=1)
    mean: Floats = np.nansum(rates, axis=1) / np.where(counts > 0, counts, np.nan)
    return mean


BYTES_OUT_AT = RATE_KEYS.index("bytes_out_per_sec")


@dataclass(frozen=True, slots=True)
class FollowerLoads:
    """What is measured of partitions of which a follower serves consumers."""

    served: Mapping[PartitionKey, Mapping[int, float]] = field(default_factory=dict)
    """Mean bytes/s that each follower serves, by broker."""
    read: Mapping[PartitionKey, Mapping[Rack, float]] = field(default_factory=dict)
    """What groups read by the rack of their members, in any unit; None is of members that name no rack."""


NO_FOLLOWERS = FollowerLoads()


def read_from_followers(
    partitions: tuple[Partition, ...],
    live: LiveCluster,
    rates: Mapping[PartitionKey, tuple[float | None, ...]],
    followers: FollowerLoads,
) -> tuple[Partition, ...]:
    """`partitions`, whose bytes out are those of leaders (`rates`, by RATE_KEYS), with what followers serve besides."""
    if not followers.served:
        return partitions
    made = []
    for partition in partitions:
        key = partition.topic, partition.partition
        served, of_leader = followers.served.get(key), rates.get(key, (None,) * len(RATE_KEYS))[BYTES_OUT_AT]
        made.append(
            _read_also(partition, live, of_leader or 0.0, served, followers.read.get(key, {})) if served else partition
        )
    return tuple(made)


def _read_also(
    partition: Partition, live: LiveCluster, of_leader: float, served: Mapping[int, float], read: Mapping[Rack, float]
) -> Partition:
    leader, racks = live.partitions[partition.topic, partition.partition].leader, live.broker_racks
    of_followers = [(racks.get(broker), rate) for broker, rate in sorted(served.items()) if broker != leader]
    readers = reader_racks((racks.get(leader), of_leader), of_followers, read)
    bytes_out = _raised(partition.load.bytes_out_per_sec, of_leader, sum(rate for _, rate in of_followers))
    return replace(partition, load=replace(partition.load, bytes_out_per_sec=bytes_out), reader_racks=readers)


def _raised(load: Load, of_leader: float, more: float) -> Load:
    """What all replicas serve. Hours of the past know the leader's part alone: each is raised as the windows are."""
    if not isinstance(load, tuple):
        return load + more
    times = (of_leader + more) / of_leader if of_leader > 0 else None
    return tuple(figure + more if times is None else figure * times for figure in load)


LedBytesIn = Mapping[int, Mapping[int, float]]
"""Start of a window, ms: broker: bytes/s that clients write to the partitions that it leads, those that are known."""


LOAD_MIN_BYTES_PER_SEC = 100_000.0
"""Below this mean load of a broker nothing is compared: shares of next to nothing are noise."""


def load_disagreement(reported: Mapping[int, float], led: Mapping[int, float]) -> dict[int, float]:
    """Returns each broker's reported load less the sum over partitions that it leads, both over the brokers' mean.

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
    """By how many mean loads brokers report more than their partitions add up to (`load_disagreement`), by broker.

    Loads are means over those of `windows` in which the broker reports, and `led` has the partitions' sums by window.
    """
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
