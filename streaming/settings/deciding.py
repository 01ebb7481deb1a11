"""Settings of the trigger and of the planner: when a plan is made, and what it may do.

Most are fields of the core's policies, which have their defaults, limits and descriptions.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from assignor_core.deciding.policy import DecisionPolicy, Detector, LastingPolicy, TriggerPolicy
from assignor_core.deciding.reasons import PLACEMENT_REASONS, Reason
from assignor_core.errors import InputError
from assignor_core.log_dirs.planning import FillPolicy
from assignor_core.model import Capacity
from assignor_core.planner.policy import FailoverHeadroom, PlannerPolicy
from assignor_core.resources import TRIGGERING, Resource
from streaming.settings.fields import Milliseconds, OneOf, RegularExpression, Section, filled, from_policy


class TriggerSettings(Section):
    """When skew counts: see docs/trigger.md for how the defaults were found."""

    enter_ratio: float = from_policy(TriggerPolicy, "enter_ratio")
    exit_ratio: float = from_policy(TriggerPolicy, "exit_ratio")
    windows_over: int = from_policy(TriggerPolicy, "windows_over")
    windows_considered: int = from_policy(TriggerPolicy, "windows_considered")
    detector: Detector = from_policy(TriggerPolicy, "detector")
    recurring_load: bool = from_policy(TriggerPolicy, "recurring_load")
    recurring_plan_min_ms: int = from_policy(TriggerPolicy, "recurring_plan_min_ms")
    cooldown_ms: int = from_policy(TriggerPolicy, "cooldown_ms")
    broker_failure_grace_ms: int = from_policy(TriggerPolicy, "broker_failure_grace_ms")
    relief_max_away_share: float = from_policy(TriggerPolicy, "relief_max_away_share")
    log_dir_fill_max: float | None = from_policy(FillPolicy, "fill_max")
    completeness_min: float = from_policy(TriggerPolicy, "completeness_min")
    load_min_bytes_per_sec: float = from_policy(TriggerPolicy, "load_min_bytes_per_sec")
    readers_without_commits_max: int | None = Field(
        10,
        ge=0,
        le=1_000_000,
        description="Control assumes that no more consumers than this read a partition for which no group commits; "
        "null: any number may.",
    )
    resources: list[Annotated[Resource, OneOf(*TRIGGERING)]] = from_policy(DecisionPolicy, "resources")
    placement_reasons: list[Annotated[Reason, OneOf(*PLACEMENT_REASONS)]] = from_policy(
        LastingPolicy, "placement_reasons"
    )
    placement_grace_ms: int = from_policy(LastingPolicy, "placement_grace_ms")
    leaders_grace_ms: int = from_policy(LastingPolicy, "leaders_grace_ms")
    empty_broker_share: float = from_policy(LastingPolicy, "empty_broker_share")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        try:
            filled(TriggerPolicy, self)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self


class CapacitySettings(Section):
    """Capacity of a broker; a key that is absent is unlimited and unweighted."""

    bytes_in_per_sec: float | None = from_policy(Capacity, "bytes_in_per_sec")
    bytes_out_per_sec: float | None = from_policy(Capacity, "bytes_out_per_sec")
    disk_bytes: float | None = from_policy(Capacity, "disk_bytes")


class BrokerSetSettings(Section):
    """Brokers that alone may hold some topics: by id, or by rack."""

    brokers: list[int] = Field(default=[], description="ids of the brokers that may hold the topics.")
    racks: list[str] = Field(default=[], description="racks whose brokers may hold the topics.")

    @model_validator(mode="after")
    def _brokers_or_racks(self) -> Self:
        if bool(self.brokers) == bool(self.racks):
            raise ValueError("names brokers or racks, one of both")
        return self


class PlannerSettings(Section):
    """What plans may do."""

    movements_max: int | None = from_policy(PlannerPolicy, "movements_max")
    bytes_max: int | None = from_policy(PlannerPolicy, "bytes_max")
    inflow_max: int | None = from_policy(PlannerPolicy, "inflow_max")
    band: float = from_policy(PlannerPolicy, "band")
    leader_band: float | None = from_policy(PlannerPolicy, "leader_band")
    count_band: float = from_policy(PlannerPolicy, "count_band")
    replicas_max: int | None = from_policy(PlannerPolicy, "replicas_max")
    keep_racks: bool = from_policy(PlannerPolicy, "keep_racks")
    leader_racks: dict[RegularExpression, Annotated[list[str], Field(min_length=1)]] = Field(
        default={},
        description="topic pattern: racks whose brokers should lead matching topics, the preferred rack first, unless "
        "the balance of loads forbids it.",
    )
    broker_sets: dict[RegularExpression, BrokerSetSettings] = Field(
        default={},
        description="topic pattern: the brokers, or racks, that alone may hold the topics; plans bring replicas there.",
    )
    spread_topics: list[RegularExpression] = Field(
        default=[],
        description="Topics that match one of these patterns should have their replicas and leaders spread evenly over "
        "brokers; the balance of loads matters more.",
    )
    leaders_min: dict[RegularExpression, Annotated[int, Field(ge=1)]] = Field(
        default={},
        description="topic pattern: how many leaders of each matching topic every broker should have at least.",
    )
    headroom: float = from_policy(PlannerPolicy, "headroom")
    failover_headroom: FailoverHeadroom = from_policy(PlannerPolicy, "failover_headroom")
    wave_movements_max: int = from_policy(PlannerPolicy, "wave_movements_max")
    throttle_bytes_per_sec: int | None = from_policy(PlannerPolicy, "throttle_bytes_per_sec")
    windows: int = from_policy(DecisionPolicy, "planner_windows")
    days: int = Field(
        7,
        ge=0,
        le=31,
        description="A plan must also fit the loads of this many days, each hour of the day on its own. "
        "0: only the newest windows count.",
    )
    load_disagreement_max: float = Field(
        0.2,
        gt=0,
        le=1000,
        description="Control refuses to plan for balance if a broker's reported bytes in differ from the sum over its "
        "partitions by more than this many mean broker loads.",
    )
    excluded_topics: RegularExpression = Field(
        "^__", description="Plans never move topics whose names match this regular expression."
    )
    capacities: dict[int, CapacitySettings] = Field(default={}, description="broker id: capacity of the broker.")
    disk_reserve: float = from_policy(FillPolicy, "reserve")
    plan_ttl_ms: Milliseconds = Field(
        3_600_000, description="A plan that is older than this is refused, and must be made again. Unit: ms."
    )
