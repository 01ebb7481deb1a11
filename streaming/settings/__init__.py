"""The shape of the settings: what can be set, the defaults, what is allowed.

Unknown keys are refused. Nothing is read here: `streaming.config` loads settings from file, environment, flags.
"""

import re
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.errors import InputError
from assignor_core.execution.adaptive_rates import RATE_MAX, RatePolicy
from assignor_core.execution.caution import LagBound, LatencyBound
from assignor_core.execution.reconcile import Limits
from assignor_core.maintenance import WINDOW_PATTERN, window_of
from streaming.settings.deciding import CapacitySettings, PlannerSettings, TriggerSettings
from streaming.settings.fields import (
    DAY_MS,
    HOUR_MS,
    RETENTION_MAX_MS,
    File,
    HttpUrl,
    Location,
    Milliseconds,
    RegularExpression,
    Section,
    ShardText,
    from_policy,
    shown,
)
from streaming.settings.login import LoginSettings
from streaming.settings.notify import NotifySettings, WebhookSettings
from streaming.settings.prometheus import PrometheusFields
from streaming.settings.serve import ServeSettings

__all__ = [
    "DAY_MS",
    "HOUR_MS",
    "CapacitySettings",
    "CollectSettings",
    "ControlSettings",
    "ForeignFormat",
    "KafkaSettings",
    "LagSettings",
    "LogSettings",
    "LoginSettings",
    "NotifySettings",
    "PipelineSettings",
    "PlannerSettings",
    "ReadableBy",
    "Section",
    "ServeSettings",
    "Settings",
    "StorageSettings",
    "TopicSettings",
    "TriggerSettings",
    "WebhookSettings",
]

Item = TypeVar("Item")
ADDRESS = r"^[\s\S]+:0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$"
"""host:port, with a port from 1 to 65535."""


def _addresses(servers: list[str]) -> list[str]:
    for server in servers:
        if not re.fullmatch(ADDRESS, server):
            raise ValueError(f"{server!r} is not host:port")
    return servers


class KafkaSettings(LoginSettings):
    """How the cluster is reached."""

    cluster_name: str = Field(
        "main", min_length=1, max_length=249, description="Name in tables, metrics and alerts (kafka_cluster)"
    )
    cluster_id: str | None = Field(
        None, min_length=1, description="Kafka's own id of the cluster; if set, no other is accepted"
    )
    bootstrap_servers: Annotated[list[Annotated[str, shown(pattern=ADDRESS)]], AfterValidator(_addresses)] = Field(
        default=["127.0.0.1:9092"], min_length=1, description="host:port of some brokers"
    )
    request_timeout_ms: int = Field(15_000, ge=1, le=DAY_MS, description="How long one request may take")


ForeignFormat = Literal["cruise-control", "telegraf-json", "otlp-json", "prometheus-json"]


class TopicSettings(Section):
    """The two input topics; created when missing."""

    byte_rate: str = Field("rebalancer.byte-rate", min_length=1, description="Topic of byte rates")
    consumer_lag: str = Field("rebalancer.consumer-lag", min_length=1, description="Topic of consumer lag")
    partitions: int = Field(4, ge=1, le=1000, description="Partitions of each, when created")
    replication_factor: int = Field(3, ge=1, le=32767, description="Wished when created; fewer brokers give fewer")
    retention_ms: Milliseconds = Field(86_400_000, description="How long records are kept, when created")
    foreign: dict[str, ForeignFormat] = Field(
        default={}, description="topic: format of topics that other tools write, read besides; see docs/pipeline.md"
    )
    broker_ids: dict[str, int] = Field(
        default={}, description="With foreign: broker id of each host or agent address that their samples name"
    )
    clusters: dict[str, str] = Field(
        default={}, description="With foreign: name of the Kafka cluster by what samples call it; others are rejected"
    )

    @model_validator(mode="after")
    def _two_topics(self) -> Self:
        if self.byte_rate == self.consumer_lag:
            raise ValueError(f"byte_rate and consumer_lag must be two topics, both are {self.byte_rate!r}")
        return self


ReadableBy = Literal["owner", "group", "everyone"]


class StorageSettings(Section):
    """Where tables and checkpoints lie."""

    tables: Location = Field("data/tables", min_length=1, description="Folder (or URI) of the Delta tables")
    checkpoints: Location = Field(
        "data/checkpoints", min_length=1, description="Folder (or URI) of Spark's checkpoints"
    )
    readable_by: ReadableBy = Field(
        "group", description="Who may read files that are made; a stricter umask of the process holds too"
    )
    s3_endpoint: HttpUrl | None = Field(
        None, description="URL of an S3 store that is not AWS's own; null: AWS, or what AWS_ENDPOINT_URL names"
    )
    s3_region: str | None = Field(None, min_length=1, description="Region of the bucket; null: what AWS_REGION names")
    s3_allow_http: bool = Field(False, description="Allows an http:// endpoint that is not on loopback")


_SMALL_PARTS = [part for part in range(1, 2_000) if HOUR_MS % part == 0]
PARTS_OF_AN_HOUR = sorted({*_SMALL_PARTS, *(HOUR_MS // part for part in _SMALL_PARTS)})
OPTIONS_OF_JAVA = shown(**{"pattern": r"^\s*(-\S*(\s+|$))*$", "not": {"pattern": r"(^|\s)-Xmx"}})


def _part_of_an_hour(window_ms: int) -> int:
    if HOUR_MS % window_ms:
        raise ValueError(
            f"must divide an hour ({HOUR_MS} ms) without remainder: hours and days are made of whole windows"
        )
    return window_ms


def _options_of_java(options: str) -> str:
    for option in options.split():
        if not option.startswith("-"):
            raise ValueError(f"{option!r} is no option of Java, which begin with -")
        if option.startswith("-Xmx"):  # Spark refuses it, amid a page of its own
            raise ValueError("pipeline.driver_memory sets -Xmx")
    return options


class CollectSettings(PrometheusFields):
    """The sampler of brokers and groups."""

    sample_interval_ms: Milliseconds = Field(10_000, description="Time between two samples")
    jmx_endpoints: dict[int, HttpUrl] = Field(
        default={}, description="broker id: URL of its jmx_exporter /metrics; optional, makes broker totals exact"
    )
    groups_include: RegularExpression = Field(".*", description="Regular expression: groups sampled")
    groups_exclude: RegularExpression = Field("(?!)", description="Regular expression: groups left out; (?!) is none")
    groups_max: int = Field(1_000, ge=1, le=100_000, description="Most groups sampled at a time; the rest is counted")
    group_partitions_max: int = Field(
        5_000,
        ge=1,
        le=1_000_000,
        description=(
            "Most partitions without a commit that are reported of a group: those that members own, and in what they "
            "leave those that nobody has noticed. Owned partitions above it are counted."
        ),
    )
    shard: ShardText = Field(
        "1/1", description="Part of the brokers and groups that this collector reports: 1/2 and 2/2 are two collectors"
    )


class PipelineSettings(Section):
    """The Spark job."""

    master: str = Field("local[2]", min_length=1, description="Spark master; spark-submit's wins where it is used")
    window_ms: Annotated[Milliseconds, AfterValidator(_part_of_an_hour), shown(enum=PARTS_OF_AN_HOUR)] = Field(
        60_000, description="Length of the tumbling windows, a whole part of an hour; part of the checkpoint"
    )
    watermark_ms: Milliseconds = Field(30_000, description="How late a sample may come and still correct its window")
    trigger_interval_ms: Milliseconds = Field(5_000, description="Time between micro-batches")
    clock_skew_max_ms: Milliseconds | None = Field(
        None,
        description="A sample further ahead of Kafka's time of it, or of the batch's time, is rejected; null: half of "
        "watermark_ms. A sender that is ahead by more than that makes samples of all others late",
    )
    shuffle_partitions: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="Number of partitions of the state. A start with another number begins new checkpoints and reads "
        "the open windows again; null: what the checkpoints have, and in new ones one for each core of the executors",
    )
    read_tasks_min: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="Least number of tasks that read a topic at a time, also if it has fewer partitions; null: one for "
        "each core of the executors",
    )
    records_per_batch_max: int = Field(2_000_000, ge=1, description="Most records read in one micro-batch and topic")
    python_on_executors: bool = Field(
        True, description="Our records are parsed and summed in Python with Arrow; false: in the JVM alone, slower"
    )
    driver_memory: str = Field("2g", pattern=r"^\d+[kmgt]$", description="Heap of the driver")
    driver_java_options: Annotated[str, AfterValidator(_options_of_java), OPTIONS_OF_JAVA] = Field(
        "", description="More options of the driver's JVM, such as -XX:TieredStopAtLevel=1; spark-submit has its own"
    )
    extra_jars: list[File] = Field([], description="More jars for Spark, such as AWS's aws-msk-iam-auth")
    retention_ms: int = Field(
        90 * 86_400_000, ge=60_000, le=RETENTION_MAX_MS, description="How long window rows are kept"
    )
    rollup_retention_ms: int = Field(
        5 * 365 * 86_400_000,
        ge=86_400_000,
        le=RETENTION_MAX_MS,
        description="How long the hours and days made of them are kept",
    )
    partition_hours_retention_ms: int = Field(
        14 * DAY_MS, ge=DAY_MS, le=RETENTION_MAX_MS, description="How long loads of partitions by the hour are kept"
    )
    rejected_bytes_per_window_max: int = Field(
        100_000, ge=0, le=1_000_000_000, description="Most bytes of rejected records kept in a window's time"
    )
    maintenance_interval_ms: Milliseconds = Field(900_000, description="Time between maintenance runs (OPTIMIZE)")

    @property
    def skew_max_ms(self) -> int:
        """How far a sample may be ahead, ms. The watermark follows the newest sample of all senders, so half of its
        delay is left to samples of the others, which need it to come.
        """
        return max(1, self.watermark_ms // 2) if self.clock_skew_max_ms is None else self.clock_skew_max_ms


WindowText = Annotated[str, shown(pattern=WINDOW_PATTERN)]


def _maintenance_windows(texts: list[str]) -> list[str]:
    for text in texts:
        try:
            window_of(text)
        except InputError as error:
            raise ValueError(str(error)) from None
    return texts


class ControlSettings(Section):
    """Deciding and acting."""

    mode: Literal["observe", "propose", "apply"] = from_policy(DecisionPolicy, "mode")
    maintenance_windows: Annotated[list[WindowText], AfterValidator(_maintenance_windows)] = from_policy(
        DecisionPolicy, "maintenance"
    )
    tick_interval_ms: Milliseconds = Field(5_000, description="Time between two evaluations by control. Unit: ms.")
    throttle_bytes_per_sec: int = from_policy(RatePolicy, "rate_max")
    log_dir_throttle_bytes_per_sec: int = Field(
        50_000_000,
        ge=1_000,
        le=RATE_MAX,
        description="Highest throttle of movements between the log dirs of one broker. Unit: bytes/s.",
    )
    throttle_adaptive: bool = from_policy(RatePolicy, "adaptive")
    throttle_min_bytes_per_sec: int = from_policy(RatePolicy, "rate_min")
    lag_groups: RegularExpression = Field(
        ".*", description="Growing lag of groups whose names match this regular expression holds movements back."
    )
    lag_growth_max: float = from_policy(LagBound, "growth_max")
    lag_min_records: int = from_policy(LagBound, "records_min")
    latency_growth_max: float = from_policy(LatencyBound, "growth_max")
    latency_min_ms: float = from_policy(LatencyBound, "ms_min")
    bad_plans_max: int = Field(
        2, ge=1, le=100, description="Mode apply stops after this many plans in a row that did not deliver their gain."
    )
    bytes_per_day_max: int | None = from_policy(DecisionPolicy, "bytes_per_day_max")
    movements_in_flight_max: int = from_policy(Limits, "movements_in_flight_max")
    movements_per_topic_max: int | None = from_policy(Limits, "movements_per_topic_max")
    movements_per_broker_max: int = from_policy(Limits, "movements_per_broker_max")
    elections_at_once_max: int = from_policy(Limits, "elections_at_once_max")
    staged_moves: bool = from_policy(Limits, "staged")
    execution_deadline_ms: int = from_policy(Limits, "deadline_ms")
    lease_ms: int = Field(
        15_000,
        ge=1_000,
        le=600_000,
        description="Another control takes over if the one at work does not renew its lease for this long. Unit: ms.",
    )
    settle_windows: int = Field(
        2, ge=1, le=100, description="Control measures the result of a plan after this many closed windows."
    )
    decision_retention_ms: int = Field(
        30 * DAY_MS,
        ge=DAY_MS,
        le=RETENTION_MAX_MS,
        description="How long decisions, and plans that were not carried out, stay stored. Unit: ms.",
    )
    execution_retention_ms: int = Field(
        400 * DAY_MS,
        ge=31 * DAY_MS,
        le=RETENTION_MAX_MS,
        description="How long executions with their plans, and outdated notes on brokers, stay stored. Unit: ms.",
    )


def _patterns(values: dict[str, Item]) -> dict[str, Item]:
    for pattern in values:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return values


class LagSettings(Section):
    """What is no lag: by a regular expression of groups, of which the first one that matches counts."""

    allowed_records: Annotated[dict[str, Annotated[int, Field(ge=0)]], AfterValidator(_patterns)] = Field(
        default={}, description="group pattern: records behind that count as no lag, as transaction markers do"
    )
    allowed_ms: Annotated[dict[str, Annotated[int, Field(ge=0)]], AfterValidator(_patterns)] = Field(
        default={}, description="group pattern: how long at least records may wait for a commit, ms"
    )
    schedules: Annotated[
        dict[str, Annotated[list[WindowText], AfterValidator(_maintenance_windows), Field(min_length=1)]],
        AfterValidator(_patterns),
    ] = Field(default={}, description="group pattern: times in which a batch reads, UTC, like ['Mon-Fri 01:00-05:00']")


class LogSettings(Section):
    """Logs: one event a line."""

    format: Literal["console", "json"] = Field("console", description="console for people, json for programs")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level shown")


class Settings(Section):
    """All settings."""

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()
    storage: StorageSettings = StorageSettings()
    collect: CollectSettings = CollectSettings()
    pipeline: PipelineSettings = PipelineSettings()
    trigger: TriggerSettings = TriggerSettings()
    planner: PlannerSettings = PlannerSettings()
    control: ControlSettings = ControlSettings()
    lag: LagSettings = LagSettings()
    serve: ServeSettings = ServeSettings()
    notify: NotifySettings = NotifySettings()
    log: LogSettings = LogSettings()
