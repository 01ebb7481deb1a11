"""Core and contract agree: what a resource is made of is measured, kept and exported under the names that both use."""

from dataclasses import fields

import pytest

from assignor_core.model import LOAD_KEYS, RATE_KEYS, Capacity
from assignor_core.resources import MEASURED, ONE, PLANNED, REPORTED, TRIGGERING, Resource
from streaming.contract import BROKER_LOAD, EXECUTION, PLAN
from streaming.contract.rates import BYTES_IN, RATES, REPLICA_RATES, Rate, Traffic
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings import CapacitySettings, Settings

JMX_RULES = (PROJECT_ROOT / "deploy/jmx/kafka-broker.yaml").read_text(encoding="utf-8")
RATE_OF = {rate.name: rate for rate in RATES}


@pytest.mark.parametrize("resource", MEASURED)
def test_windows_keep_what_a_resource_is_made_of(resource: Resource) -> None:
    assert set(resource.figures) <= set(BROKER_LOAD.column_names())
    assert all(RATE_OF[figure].traffic is not Traffic.REASSIGNMENT for figure in resource.figures if figure in RATE_OF)


@pytest.mark.parametrize("resource", Resource)
def test_a_resource_is_measured_against_a_capacity_that_can_be_set(resource: Resource) -> None:
    assert resource.capacity_key in {field.name for field in fields(Capacity)} & set(CapacitySettings.model_fields)


@pytest.mark.parametrize("resource", PLANNED)
def test_the_model_of_a_partition_has_what_replicas_carry_of_a_planned_resource(resource: Resource) -> None:
    assert resource.carried is not None
    figures = {resource.carried.leader, resource.carried.follower, resource.carried.per_follower} - {None}
    assert figures <= ({ONE} if resource.is_count else set(LOAD_KEYS))
    assert resource.carried.leader is not None, "somebody has to carry it"


def test_every_figure_of_a_partition_is_planned_on_and_every_rate_of_it_is_measured() -> None:
    carried = [row.carried for row in PLANNED if row.carried is not None]
    assert set(LOAD_KEYS) <= {row.leader for row in carried} | {row.per_follower for row in carried}
    assert set(RATE_KEYS) <= {rate.name for rate in REPLICA_RATES}
    assert RATE_KEYS[0] == BYTES_IN.name, "the rate whose absence makes a load unknown"


@pytest.mark.parametrize("resource", REPORTED)
def test_plans_and_executions_keep_its_skew(resource: Resource) -> None:
    assert f"{resource}_max_over_mean_before" in PLAN.column_names()
    assert f"{resource}_max_over_mean_measured" in EXECUTION.column_names()


def test_every_resource_that_may_trigger_can_be_set_and_no_other() -> None:
    named = [str(resource) for resource in TRIGGERING]
    assert Settings.model_validate({"trigger": {"resources": named}}).trigger.resources == named
    for other in set(Resource) - set(TRIGGERING):
        with pytest.raises(ValueError, match="Input should be 'bytes_in', "):
            Settings.model_validate({"trigger": {"resources": [str(other)]}})


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: rate.name)
def test_brokers_export_the_meter_of_every_rate(rate: Rate) -> None:
    assert f"name={rate.meter}PerSec" in JMX_RULES
