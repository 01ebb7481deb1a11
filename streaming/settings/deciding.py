"""Settings of the trigger and of the planner: when a plan is made, and what it may do."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from assignor_core.resources import TRIGGERING, Resource
from streaming.settings.fields import Milliseconds, Ratio, RegularExpression, Section


def _triggering(name: object) -> Resource:
    resource = next((resource for resource in TRIGGERING if resource == name), None)
    if resource is None:
        *others, last = (f"'{resource}'" for resource in TRIGGERING)
        raise PydanticCustomError("resource", f"Input should be {', '.join(others)} or {last}")
    return resource


class TriggerSettings(Section):
    """When skew counts: see docs/trigger.md for how the defaults were found."""

    enter_ratio: float = Field(1.30, ge=1.0, description="max/mean above this, in enough windows, is skew")
    exit_ratio: float = Field(1.15, ge=1.0, description="max/mean below this ends it")
    windows_over: int = Field(3, ge=1, le=1000, description="k: windows that must be over, out of ...")
    windows_considered: int = Field(5, ge=1, le=1000, description="n: the newest windows looked at")
    detector: Literal["noise", "windows"] = Field(
        "noise", description="noise: a broker must also be over by more than its own noise; windows: k of n are enough"
    )
    recurring_load: bool = Field(
        True, description="Skew that comes at the same time each day or week makes no plan of its own"
    )
    recurring_plan_min_ms: Milliseconds = Field(
        3_600_000, description="If it lasts for so long each time, one plan is made for it"
    )
    cooldown_ms: int = Field(600_000, ge=0, description="After a plan, no new one for this long")
    broker_failure_grace_ms: Milliseconds = Field(
        1_800_000, description="A broker away for longer has failed: its replicas are planned elsewhere"
    )
    relief_max_away_share: Ratio = Field(
        0.40, description="With a larger share of the brokers away, replicas of failed brokers are not made anew"
    )
    log_dir_fill_max: Ratio | None = Field(
        0.85, description="A log dir filled beyond this share is relieved within its broker; null: never"
    )
    completeness_min: Ratio = Field(0.95, description="Least share of brokers that reported in a window")
    load_min_bytes_per_sec: float = Field(
        100_000.0, ge=0, description="Below this mean load of a broker, skew isn't worth a move"
    )
    readers_without_commits_max: int | None = Field(
        10,
        ge=0,
        le=1_000_000,
        description="How many consumers at most are assumed to read a partition for which no group commits; null: any",
    )
    resources: list[
        Annotated[
            Resource,
            BeforeValidator(_triggering),
            WithJsonSchema({"type": "string", "enum": [resource.value for resource in TRIGGERING]}),
        ]
    ] = Field(
        default=[Resource.BYTES_IN, Resource.BYTES_OUT], min_length=1, description="Resources whose skew may trigger"
    )

    placement_reasons: list[Literal["crowded_racks", "empty_broker", "unpreferred_leaders"]] = Field(
        default=["crowded_racks", "empty_broker", "unpreferred_leaders"],
        description="States of the placement that get a small plan of their own if they last; [] for none",
    )
    placement_grace_ms: Milliseconds = Field(
        600_000, description="So long racks must be crowded, or a broker be empty, before a plan mends it"
    )
    leaders_grace_ms: Milliseconds = Field(
        1_800_000, description="So long others than the preferred replicas must lead before these are elected"
    )
    empty_broker_share: float = Field(
        0.2, ge=0, lt=1, description="A broker with less of the mean of replicas, and of each load, is nearly empty"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.exit_ratio >= self.enter_ratio:
            raise ValueError(f"exit_ratio {self.exit_ratio} must be below enter_ratio {self.enter_ratio}")
        if self.windows_over > self.windows_considered:
            raise ValueError(f"windows_over {self.windows_over} exceeds windows_considered {self.windows_considered}")
        return self


class CapacitySettings(Section):
    """Capacity of a broker; a key that is absent is unlimited and unweighted."""

    bytes_in_per_sec: float | None = Field(None, gt=0)
    bytes_out_per_sec: float | None = Field(None, gt=0)
    disk_bytes: float | None = Field(None, gt=0)


class PlannerSettings(Section):
    """What plans may do."""

    movements_max: int | None = Field(None, ge=1, description="Most partitions changed by one plan")
    bytes_max: int | None = Field(None, ge=1, description="Most bytes copied by one plan")
    inflow_max: int | None = Field(None, ge=1, description="Most bytes copied to any one broker by one plan")
    band: float = Field(
        0.03,
        ge=0,
        le=10,
        description="Bytes in, bytes out, disk: no broker above 1 + band of its fair share; wider moves less",
    )
    leader_band: float | None = Field(
        None, ge=0, le=10, description="The same for leader bytes in; null: band + 0.02, as leadership is coarser"
    )
    count_band: float = Field(
        0.5,
        ge=0,
        le=10,
        description="Soft limit: brokers aim at no more than 1 + count_band of a fair share of leaders and replicas",
    )
    replicas_max: int | None = Field(
        None, ge=1, description="Most replicas on any one broker; one that has more takes none; null: no limit"
    )
    keep_racks: bool = Field(False, description="Replicas move within their racks only")
    leader_racks: dict[RegularExpression, Annotated[list[str], Field(min_length=1)]] = Field(
        default={},
        description="topic pattern: racks that should lead, the most wanted first; balance of loads goes first",
    )
    headroom: float = Field(0.0, ge=0, lt=1, description="Share of each capacity that plans leave free")
    wave_movements_max: int = Field(1000, ge=1, le=1_000_000, description="Most movements of one wave of a plan")
    throttle_bytes_per_sec: int | None = Field(
        None, ge=1_000, description="Durations of plans are estimated at it; null: control.throttle_bytes_per_sec"
    )
    windows: int = Field(5, ge=1, le=1000, description="Newest closed windows whose mean load is planned on")
    days: int = Field(
        7, ge=0, le=31, description="Days whose hours are planned on too, each hour of the day as one; 0: windows alone"
    )
    load_disagreement_max: float = Field(
        0.2,
        gt=0,
        le=1000,
        description="No plan for balance where a broker's bytes in and its partitions' sum differ by more mean loads",
    )
    excluded_topics: RegularExpression = Field("^__", description="Regular expression: topics that are never moved")
    capacities: dict[int, CapacitySettings] = Field(default={}, description="broker id: capacity")
    disk_reserve: Ratio = Field(
        0.10, description="Share of each log dir's volume that copies leave free: no plan and no movement fills it"
    )
    plan_ttl_ms: Milliseconds = Field(3_600_000, description="A plan older than this is refused")
