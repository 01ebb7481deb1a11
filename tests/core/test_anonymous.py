"""A model without names is the same cluster: what is planned for it is the plan for the other, under other names."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from assignor_core.anonymous import anonymous
from assignor_core.model import ClusterState, cluster_to_json
from assignor_core.planner import propose
from tests.core.planner.cases import clusters


def with_names(state: ClusterState) -> ClusterState:
    """Names that people give; in the order of the cluster's own, which breaks ties."""
    partitions = tuple(replace(row, topic=f"secret.{row.topic}") for row in state.partitions)
    return replace(state, cluster_id="bank", partitions=partitions)


@pytest.mark.long
@given(clusters(reads=True))
@settings(max_examples=12, deadline=None)
def test_the_plan_is_the_same_under_other_names(state: ClusterState) -> None:
    named = with_names(state)
    made = anonymous(named)
    text = str(cluster_to_json(made))
    assert "secret" not in text
    assert "bank" not in text
    ids = {row.broker_id: number for number, row in enumerate(named.brokers, start=1)}
    topics = {topic: number for number, topic in enumerate(sorted({row.topic for row in named.partitions}), start=1)}
    expected = [
        (topics[row.topic], row.partition, [ids[broker] for broker in row.new_replicas], row.bytes_to_move)
        for row in propose(named).movements
    ]
    assert expected == [
        (int(row.topic.partition("-")[2]), row.partition, list(row.new_replicas), row.bytes_to_move)
        for row in propose(made).movements
    ]
