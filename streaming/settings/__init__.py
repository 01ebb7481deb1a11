"""The shape of the settings: what can be set, the defaults, what is allowed.

Unknown keys are refused. Nothing is read here: `streaming.config` loads settings from file, environment, flags.
"""

import re
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.errors import InputError
from assignor_core.execution.adaptive_rates import RATE_MAX, RatePolicy
from assignor_core.execution.approvals import APPROVALS_MAX
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
        "main",
        min_length=1,
        max_length=249,
        description="The name of the cluster in tables, metrics and alerts (kafka_cluster).",
    )
    cluster_id: str | None = Field(
        None,
        min_length=1,
        description="Kafka's own id of the cluster. If it is set, every role refuses another cluster.",
    )
    bootstrap_servers: Annotated[list[Annotated[str, shown(pattern=ADDRESS)]], AfterValidator(_addresses)] = Field(
        default=["127.0.0.1:9092"], min_length=1, description="Addresses, host:port, of some brokers of the cluster."
    )
    request_timeout_ms: int = Field(
        15_000, ge=1, le=DAY_MS, description="A request to a broker may take this long. Unit: ms."
    )


ForeignFormat = Literal["cruise-control", "telegraf-json", "otlp-json", "prometheus-json"]


class TopicSettings(Section):
    """The two input topics; created when missing."""

    byte_rate: str = Field("rebalancer.byte-rate", min_length=1, description="The topic of byte rates.")
    consumer_lag: str = Field("rebalancer.consumer-lag", min_length=1, description="The topic of consumer lag.")
    partitions: int = Field(4, ge=1, le=1000, description="Partitions of each topic that is created.")
    replication_factor: int = Field(
        3,
        ge=1,
        le=32767,
        description="Replicas of each topic that is created; a cluster with fewer brokers gets fewer.",
    )
    retention_ms: Milliseconds = Field(
        86_400_000, description="A topic that is created keeps records for this long. Unit: ms."
    )
    foreign: dict[str, ForeignFormat] = Field(
        default={},
        description="topic: format of a topic that another tool writes and the pipeline reads; see docs/pipeline.md.",
    )
    broker_ids: dict[str, int] = Field(
        default={}, description="host: broker id of each host or agent address that samples of foreign topics name."
    )
    clusters: dict[str, str] = Field(
        default={},
        description="name: cluster_name of each cluster that samples of foreign topics name; others are rejected.",
    )

    @model_validator(mode="after")
    def _two_topics(self) -> Self:
        if self.byte_rate == self.consumer_lag:
            raise ValueError(f"byte_rate and consumer_lag must be two topics, both are {self.byte_rate!r}")
        for name in (self.byte_rate, self.consumer_lag):
            if name in self.foreign:
                raise ValueError(f"foreign must not name {name!r}, which is byte_rate or consumer_lag")
        return self


ReadableBy = Literal["owner", "group", "everyone"]


class StorageSettings(Section):
    """The places of tables and checkpoints."""

    tables: Location = Field("data/tables", min_length=1, description="The folder (or URI) of the Delta tables.")
    checkpoints: Location = Field(
        "data/checkpoints", min_length=1, description="The folder (or URI) of Spark's checkpoints."
    )
    readable_by: ReadableBy = Field(
        "group", description="Who may read the files that roles write; a stricter umask of the process counts too."
    )
    s3_endpoint: HttpUrl | None = Field(
        None, description="The URL of an S3 store that is not AWS's own; null: AWS, or what AWS_ENDPOINT_URL names."
    )
    s3_region: str | None = Field(
        None, min_length=1, description="The region of the bucket; null: what AWS_REGION names."
    )
    s3_allow_http: bool = Field(False, description="true: the S3 endpoint may be http:// on another machine.")


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


def _one_each(urls: dict[int, str]) -> dict[int, str]:
    """Checks that no two brokers have one endpoint: each would show the load of one of them."""
    brokers: dict[str, int] = {}
    for broker, url in urls.items():
        other = brokers.setdefault(url, broker)
        if other != broker:
            raise ValueError(f"brokers {other} and {broker} have the same URL; each broker needs its own")
    return urls


def _own_process(role: str) -> Any:
    return Field(
        True,
        description=f"true: each of several clusters has a {role} process of its own; false: one process works for all "
        "clusters that have false here, in a thread for each, which saves memory where clusters are small.",
    )


class CollectSettings(PrometheusFields):
    """The sampler of brokers and groups."""

    sample_interval_ms: Milliseconds = Field(
        10_000, description="How often the collector samples the cluster. Unit: ms."
    )
    jmx_endpoints: Annotated[dict[int, HttpUrl], AfterValidator(_one_each)] = Field(
        default={}, description="broker id: URL of the broker's jmx_exporter /metrics, which makes broker totals exact."
    )
    groups_include: RegularExpression = Field(
        ".*", description="The collector samples groups whose names match this regular expression."
    )
    groups_exclude: RegularExpression = Field(
        "(?!)",
        description="The collector leaves out groups whose names match this regular expression; (?!) matches none.",
    )
    groups_max: int = Field(
        1_000,
        ge=1,
        le=100_000,
        description="The collector samples no more groups than this at a time, and counts the rest.",
    )
    group_partitions_max: int = Field(
        5_000,
        ge=1,
        le=1_000_000,
        description=(
            "The collector reports no more partitions without a commit of a group than this: first those that members "
            "own, then those that nobody has noticed. It counts owned partitions above that."
        ),
    )
    shard: ShardText = Field(
        "1/1",
        description="The part of the brokers and groups that this collector reports: 1/2 and 2/2 are two collectors.",
    )
    own_process: bool = _own_process("collect")


class PipelineSettings(Section):
    """The Spark job."""

    master: str = Field(
        "local[2]",
        min_length=1,
        description="The Spark master; the master of spark-submit counts if spark-submit starts the pipeline.",
    )
    window_ms: Annotated[Milliseconds, AfterValidator(_part_of_an_hour), shown(enum=PARTS_OF_AN_HOUR)] = Field(
        60_000,
        description="The length of a window, a whole part of an hour; checkpoints belong to one length. Unit: ms.",
    )
    watermark_ms: Milliseconds = Field(
        30_000, description="A sample that is no later than this still corrects its window. Unit: ms."
    )
    trigger_interval_ms: Milliseconds = Field(
        5_000, description="How often the pipeline begins a micro-batch. Unit: ms."
    )
    clock_skew_max_ms: Milliseconds | None = Field(
        None,
        description="A sample further ahead of Kafka's time of it, or of the batch's time, is rejected; null: half of "
        "watermark_ms. A sender that is further ahead makes the samples of all others late. Unit: ms.",
    )
    shuffle_partitions: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="Spark's state has this many partitions. A start with another number begins new checkpoints and "
        "reads the open windows again; null: as the checkpoints have it, in new ones one for each core of executors.",
    )
    read_tasks_min: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="At least this many tasks read a topic at a time, also if it has fewer partitions; null: one for "
        "each core of the executors.",
    )
    records_per_batch_max: int = Field(
        2_000_000, ge=1, description="A micro-batch reads no more records of a topic than this."
    )
    python_on_executors: bool = Field(
        True,
        description="true: executors parse and sum records in Python with Arrow; false: in the JVM, which is slower.",
    )
    driver_memory: str = Field("2g", pattern=r"^\d+[kmgt]$", description="The heap of the driver's JVM.")
    driver_java_options: Annotated[str, AfterValidator(_options_of_java), OPTIONS_OF_JAVA] = Field(
        "",
        description="More options of the driver's JVM, such as -XX:TieredStopAtLevel=1; spark-submit has its own.",
    )
    extra_jars: list[File] = Field([], description="More jars for Spark, such as AWS's aws-msk-iam-auth.")
    retention_ms: int = Field(
        90 * 86_400_000,
        ge=60_000,
        le=RETENTION_MAX_MS,
        description="Rows of windows stay stored for this long. Unit: ms.",
    )
    rollup_retention_ms: int = Field(
        5 * 365 * 86_400_000,
        ge=86_400_000,
        le=RETENTION_MAX_MS,
        description="Rows of hours and days stay stored for this long. Unit: ms.",
    )
    partition_hours_retention_ms: int = Field(
        14 * DAY_MS,
        ge=DAY_MS,
        le=RETENTION_MAX_MS,
        description="Loads of partitions by the hour stay stored for this long. Unit: ms.",
    )
    rejected_bytes_per_window_max: int = Field(
        100_000,
        ge=0,
        le=1_000_000_000,
        description="The pipeline stores no more of rejected records than this in a window's time. Unit: bytes.",
    )
    maintenance_interval_ms: Milliseconds = Field(
        900_000, description="How often the upkeep of the tables runs. Unit: ms."
    )

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
    approvals: int = Field(
        1,
        ge=1,
        le=APPROVALS_MAX,
        description="So many different people have to approve a plan before it is carried out; mode apply needs none.",
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
    own_process: bool = _own_process("control")


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
        default={}, description="By pattern of group names, how many records behind count as no lag."
    )
    allowed_ms: Annotated[dict[str, Annotated[int, Field(ge=0)]], AfterValidator(_patterns)] = Field(
        default={}, description="By pattern of group names, how long records may wait for a commit. Unit: ms."
    )
    schedules: Annotated[
        dict[str, Annotated[list[WindowText], AfterValidator(_maintenance_windows), Field(min_length=1)]],
        AfterValidator(_patterns),
    ] = Field(
        default={}, description="By pattern of group names, when a batch reads (UTC), like ['Mon-Fri 01:00-05:00']."
    )


class LogSettings(Section):
    """Logs: one event a line."""

    format: Literal["console", "json"] = Field(
        "console", description="console: text for people; json: an object a line for programs."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Events below this level are not logged."
    )


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
