"""Checks of the size of a cluster, of its racks, of brokers that are down, and of partitions that lack replicas."""

from assignor_core.live import NO_LEADER, LiveCluster, lagging_text, offline, offline_text
from assignor_core.racks import some_without_rack
from assignor_core.wording import counted
from streaming.commands.broker_names import broker_names


def reached(live: LiveCluster) -> tuple[bool, str]:
    """How large the cluster is that answered; names brokers without a rack beside others that have one."""
    racks = {rack for rack in live.broker_racks.values() if rack}
    sizes = ((live.broker_racks, "broker"), (racks, "rack"), (live.partitions, "partition"))
    without = [f"broker {broker}" for broker, rack in sorted(live.broker_racks.items()) if not rack]
    mixed = some_without_rack(without, len(racks) + len(without))
    detail = ", ".join(counted(len(rows), one, f"{one}s") for rows, one in sizes)
    return True, detail if mixed is None else f"{detail}; {mixed}"


def brokers_alive(live: LiveCluster) -> tuple[bool, str]:
    """Whether every broker that holds replicas is alive."""
    away = live.hosts_away()
    if not away:
        return True, f"all that hold replicas, {counted(len(live.broker_racks), 'broker', 'brokers')}"
    held = sum(bool(away.intersection(row.replicas)) for row in live.partitions.values())
    verb = "is" if len(away) == 1 else "are"
    return False, f"{broker_names(away)} {verb} down, with replicas of {counted(held, 'partition', 'partitions')}"


def partitions_healthy(live: LiveCluster) -> tuple[bool, str]:
    """Whether every partition has a leader, and every replica of the others is in sync."""
    without_leader = offline(live)
    short = [
        key for key, row in live.partitions.items() if row.leader != NO_LEADER and len(row.isr) < len(row.replicas)
    ]
    problems = [offline_text(without_leader)] if without_leader else []
    problems += [lagging_text(len(short), short[0])] if short else []
    return not problems, "; ".join(problems) or "every replica is in sync"
