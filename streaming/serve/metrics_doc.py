"""docs/metrics.md, written from `families`: `python -m streaming.serve.metrics_doc > docs/metrics.md`."""

import textwrap
from collections.abc import Iterable

import click

from assignor_core.resources import REPORTED
from streaming.serve import families
from streaming.serve.compatible import COMPATIBLE
from streaming.serve.families import Family
from streaming.serve.samples import OTHER_THAN_SKEW, SUPPRESSING
from streaming.serve.snapshot import PARTS

HEAD = """# Metrics

Generated from `streaming/serve/families.py` by `python -m streaming.serve.metrics_doc`; a test compares.

`rebalancer serve` answers `/metrics` in Prometheus' text format, and in OpenMetrics if the scraper asks for it.
Every series has the label `kafka_cluster` (`kafka.cluster_name` in the settings) besides those in the table. An unknown
value is absent, never 0 and never NaN. Load figures are means over the newest **closed** window, so they change once
a window.

Counters of decisions and executions count rows of the Delta tables. They continue after any restart, and fall only if
rows are removed. Counters of the stream begin at 0 with the process of the pipeline. Metrics of a table appear after
the first successful read: otherwise a volume that is mounted late would look like a rise from 0. A silent streaming
query keeps its series for a day.

Fixed label values:

- `resource`, `trigger`: {resources}
- `trigger` also has reasons of their own (docs/trigger.md):
  {triggers}
- `part`: {parts}
- `reason` of `rebalancer_rebalance_suppressed_total`:
{reasons}
- `kind`: `leader` (only the leader changes), `replica`
- `source`: `byte_rate`, which includes `topics.foreign`, and `consumer_lag`. For rejected records also `other`: topics
  that the pipeline no longer reads. `query` adds `rejects`
- `status`: `ok`, `unknown`, `warn`, `stop`, `stall`, `rewind`, in order of severity (docs/lag.md)
- `mode`: `observe`, `propose`, `apply`

`serve` exports at most `serve.series_max` series. The sections are in order of importance: `serve` cuts what exceeds
the limit from the end, and `rebalancer_export_dropped_series` counts the cut series by family. Metrics of consumer
groups come last, group after group, by verdict and then with most lag first. So the healthiest groups are cut first.
All metrics of a group that alerts use come before the details of any group. At the default limit 1,000 groups on three
topics each lose nothing that an alert needs.

Two figures of a query come from comparing its heartbeats, which every process writes in the same way:

- `rebalancer_stream_first_batch` is the number of batches that were done before its process began. So it changes with
  each start that follows a batch, also if a process dies after its first batch. It is late by one heartbeat.
- `rebalancer_stream_last_change_timestamp_seconds` does not change while a batch is under way. An idle query reports
  every 10 s how many ms it took to look for records, so its heartbeats differ, if not each from the one before.

Rebalances of consumer groups come from `group_event`. It compares the newest sample of each window
(`pipeline.window_ms`, a minute) with that of the window before:

- `rebalancer_consumergroup_rebalances_total` counts what that comparison shows, so it is a lower bound.
  - If the group's generation is known, it counts all rebalances between two samples. The newer protocols always show
    it, because brokers send their epochs. The classic protocol shows it from the second rebalance on, if members are
    Java's.
  - If the generation is unknown, it counts one rebalance. One that is still under way at some samples counts at the
    first of them alone. While a classic group rebalances, brokers 3.9 show nothing of what its members own, and such a
    sample counts nothing. The next one that shows them is compared with the last one that did.
  - It counts the events of the running week, from Thursday 00:00 UTC on, and begins at 0 with the next week. If half of
    `pipeline.retention_ms` is less than a week, that is the period. Events of a week are younger than those that
    expire, so neither a restart of this process nor expiry makes it fall. Only the end of the week does. `rate` and
    `increase` treat that correctly, as a counter that began again.
- `rebalancer_consumergroup_rebalance_duration_seconds` is the time from the last sample before the newest rebalance of
  the week to the first sample that showed the group settled (or to the newest, while it isn't). The true duration is
  shorter, by two windows at most. One window means "less than that"; only larger values show how long it lasted.
- `rebalancer_consumergroup_members` counts all members, also those that own nothing. Records of other producers have no
  `group_members`. For their groups it counts members that own partitions, and is absent if none does.

These figures come once the window is closed: a minute or two after the fact.

Other totals that count table rows follow the same rule. Each covers a period, begins at 0 with the next one, and does
not change at a restart of this process (`test_totals_begin_anew_before_rows_expire_and_never_fall_otherwise`):

- `rebalancer_ingest_rejected_records_total`: the running week, or half of `pipeline.retention_ms`.
- Evaluations, triggers, suppressed plans and the planner's times: half of `control.decision_retention_ms`.
- Failures and durations of executions: half of `control.execution_retention_ms`.

`serve` prepares the bytes of a scrape when it reads the tables, every `serve.refresh_interval_ms`. With 50
brokers and 200 groups half of the scrapes took at most 4.5 ms (2026-11-21, [measurements](measurements/serve.md)).

Each answer ends with the usual `process_...` metrics of the serve process itself (memory, CPU, open files).
"""

COMPATIBLE_HEAD = """\
## Names of other lag exporters

`serve.compatible_metrics` lists exporters whose names `/metrics` has besides its own, so that their boards and alerts
still work: `kafka_exporter` (danielqsj/kafka_exporter), `kminion` (redpanda-data/kminion) and `burrow_exporter`
(jirwin/burrow_exporter). By default there are none. To change over, set it, point their scrape job at
`rebalancer serve`, and keep the name of the job if boards select by it.

- Names, labels and types are theirs, all of them gauges. These series have no label `kafka_cluster`; `cluster` of
  burrow_exporter is `kafka.cluster_name`.
- Only what the tables hold is there. Offsets of topics are those of partitions that a group reads. What is unknown is
  absent: a partition without a committed offset has no lag. Sums are over the partitions that are known.
- Left out are addresses of brokers, coordinators, numbers of partitions and replicas, sums over whole topics, and the
  status codes of burrow_exporter: use `rebalancer_consumergroup_status`.
- Figures are those of the newest sample (`collect.sample_interval_ms`) in the windows that the pipeline has written.
- They come after all other metrics under `serve.series_max`: sums by group and topic first, then partitions, worst
  groups first. A series for each partition of each group may be too many: raise the limit, and look at
  `rebalancer_export_dropped_series`.

`tests/serve/compatible` lists metrics of theirs with the source of each list; a test compares names, labels and types.
The lists were written on 2026-11-22 from what is known of these projects, and not compared with a release of theirs.

Earlier versions had `network_in` and `network_out` for `bytes_in` and `bytes_out` in the labels `resource` and
`trigger`. With `network_labels` in the list, each such series is there under both values: for the time in which boards
and alerts of your own are changed. The shipped alerts then show each skew twice.
"""

SECTIONS: tuple[tuple[str, tuple[Family, ...]], ...] = (
    ("This exporter", families.SNAPSHOT),
    ("Streaming queries and ingest", families.STREAMS),
    ("Window", families.WINDOW),
    ("Skew", families.SKEW),
    ("Rebalancing", families.REBALANCE),
    ("Brokers", families.BROKERS),
    ("Log dirs", families.LOG_DIRS),
    ("Webhooks", families.WEBHOOKS),
    ("Delta tables", families.TABLES),
    ("Hot partitions", families.HOT),
    ("Consumer groups", families.GROUPS),
    ("Cut series", families.EXPORT),
)


def render() -> str:
    """Returns the whole page of the metrics."""
    head = HEAD.format(
        resources=_words(REPORTED),
        parts=_words(PARTS),
        triggers=_words(OTHER_THAN_SKEW),
        reasons=textwrap.fill(_words(SUPPRESSING), 118, initial_indent="  ", subsequent_indent="  "),
    )
    return "\n".join([head, *(_section(title, rows) for title, rows in SECTIONS), _compatible()])


def _section(title: str, rows: tuple[Family, ...]) -> str:
    lines = [f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in rows:
        labels = ", ".join(f"`{label}`" for label in family.labels) or "-"
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join([*lines, ""])


def _compatible() -> str:
    lines = [COMPATIBLE_HEAD, "| exporter | metric | labels | meaning |", "|---|---|---|---|"]
    for family in COMPATIBLE:
        labels = _words(family.labels) or "-"
        lines.append(f"| {family.exporter} | `{family.name}` | {labels} | {family.help} |")
    return "\n".join([*lines, ""])


def _words(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    click.echo(render(), nl=False)
