"""A cluster model without the names that people gave: for reports of faults, and for models that are handed on.

Brokers, racks and topics get numbers in their order, so that a plan for the new model is the plan for the old one with
other names: ties are broken by broker ids and by names of topics. Loads, sizes and the placement stay as they are.
"""

from dataclasses import replace

from assignor_core.model import Broker, ClusterState, Partition


def anonymous(cluster: ClusterState) -> ClusterState:
    """Returns `cluster` with brokers 1, 2, ..., racks rack-1, rack-2, ... and topics topic-1, topic-2, ...

    >>> from assignor_core.model import NO_LOAD
    >>> rows = (Partition("pay", 0, (7,), NO_LOAD), Partition("orders", 0, (7,), NO_LOAD))
    >>> made = anonymous(ClusterState("bank", 5, (Broker(7, "eu"),), rows))
    >>> made.cluster_id, made.brokers[0].broker_id, made.brokers[0].rack, [row.topic for row in made.partitions]
    ('anonymous', 1, 'rack-1', ['topic-2', 'topic-1'])
    """
    ids = {broker: number for number, broker in enumerate(sorted(row.broker_id for row in cluster.brokers), start=1)}
    by_id = sorted(cluster.brokers, key=lambda broker: broker.broker_id)
    named = [broker.rack for broker in by_id if broker.rack is not None]
    read_from = sorted({rack for row in cluster.partitions for rack, _ in row.reader_racks})
    racks = {rack: f"rack-{number}" for number, rack in enumerate(dict.fromkeys([*named, *read_from]), start=1)}
    topics = sorted({row.topic for row in cluster.partitions})
    width = len(str(len(topics)))
    names = {topic: f"topic-{number:0{width}}" for number, topic in enumerate(topics, start=1)}

    def broker_of(row: Broker) -> Broker:
        return replace(row, broker_id=ids[row.broker_id], rack=None if row.rack is None else racks[row.rack])

    def partition_of(row: Partition) -> Partition:
        replicas = tuple(ids[broker] for broker in row.replicas)
        readers = tuple((racks[rack], part) for rack, part in row.reader_racks)
        return replace(row, topic=names[row.topic], replicas=replicas, reader_racks=readers)

    brokers, partitions = tuple(map(broker_of, cluster.brokers)), tuple(map(partition_of, cluster.partitions))
    return ClusterState("anonymous", 0, brokers, partitions)
