"""docs/metrics.md, written from `families`: `python -m streaming.serve.metrics_doc > docs/metrics.md`."""

import textwrap
from collections.abc import Iterable
from itertools import groupby

import click

from assignor_core.resources import REPORTED
from streaming.serve.compatible import COMPATIBLE
from streaming.serve.families import FAMILIES, SECTIONS, Family
from streaming.serve.samples import OTHER_THAN_SKEW, SUPPRESSING
from streaming.serve.snapshot import PARTS

HEAD = """# Metrics

After this page you can read every series of `/metrics` of `rebalancer serve`, and write alerts and boards on them.
`python -m streaming.serve.metrics_doc` generates the page.

- Names that end in `_total` are counters, all others gauges, but for two histograms:
  {histograms}
- Metrics of a table appear after its first successful read. A query that has stopped keeps its series for a day.
- Every series has the label `kafka_cluster` besides those in braces.
- An unknown value is absent, never 0 or NaN. Load figures are means over the newest **closed** window.
- Counters of the stream begin at 0 with the pipeline's process. Counters of table rows cover a period and begin at 0
  with the next one; `rate` and `increase` treat that correctly. A restart of serve changes none:

| counter | period |
|---|---|
| rebalances of groups, rejected records | the week from Thursday on (UTC), or half of `pipeline.retention_ms` |
| evaluations, triggers, suppressed plans, the planner's times | half of `control.decision_retention_ms` |
| failures and durations of executions | half of `control.execution_retention_ms` |

Label values:

- `resource`, `trigger`: {resources}
- `trigger` also has reasons (docs/trigger.md):
  {triggers}
- `part`: {parts}
- `reason` of `rebalancer_rebalance_suppressed_total`:
{reasons}
- `kind`: `leader` (only the leader changes), `replica`
- `source`: `byte_rate` (with `topics.foreign`), `consumer_lag`; of rejected records also `other`. `query` adds
  `rejects`
- `status`: `ok`, `unknown`, `warn`, `stop`, `stall`, `rewind`, in order of severity (docs/lag.md)
- `mode`: `observe`, `propose`, `apply`

**Too many series.** `serve` exports at most `serve.series_max` series and cuts from the end;
`rebalancer_export_dropped_series` counts what it cut by family. Groups come last, by verdict and then with most lag
first. At the default 1,000 groups on three topics each lose nothing that an alert needs.

**Rebalances of groups** come from two closed windows, a minute or two after the fact. The total is a lower bound, the
duration at most two windows too long ([groups.md](groups.md#your-own-groups)).

Each answer ends with the usual `process_...` metrics of the serve process.
"""

COMPATIBLE_HEAD = """\
## Names of other lag exporters

`serve.compatible_metrics` lists exporters whose names `/metrics` has besides its own, so that their boards and alerts
still work: `kafka_exporter` (danielqsj/kafka_exporter), `kminion` (redpanda-data/kminion) and `burrow_exporter`
(jirwin/burrow_exporter). To change over, set it, point their scrape job at `rebalancer serve`, and keep the job's
name.

- All are gauges without the label `kafka_cluster`; `cluster` of burrow_exporter is `kafka.cluster_name`.
- Offsets of topics are those of partitions that a group reads. Sums are over the partitions that are known.
- Status codes of burrow_exporter are left out: use `rebalancer_consumergroup_status`.
- They come last under `serve.series_max`: raise it if `rebalancer_export_dropped_series` shows them.
- `network_labels` in the list exports each series of `bytes_in` and `bytes_out` a second time as `network_in` and
  `network_out`, until your own boards and alerts are changed. The shipped alerts then show each skew twice.

No release of these exporters was compared.
"""


def render() -> str:
    """Returns the whole page of the metrics."""
    head = HEAD.format(
        histograms=" and ".join(f"`{family.name}`" for family in FAMILIES if family.kind == "histogram"),
        resources=_words(REPORTED),
        parts=_words(PARTS),
        triggers=_words(OTHER_THAN_SKEW),
        reasons=textwrap.fill(_words(SUPPRESSING), 118, initial_indent="  ", subsequent_indent="  "),
    )
    return "\n".join([head, *(_section(title, rows) for title, rows in SECTIONS.items()), _compatible()])


def _section(title: str, rows: tuple[Family, ...]) -> str:
    lines = [f"## {title}", "", "| metric | meaning |", "|---|---|"]
    for family in rows:
        labels = f"{{{','.join(family.labels)}}}" if family.labels else ""
        lines.append(f"| `{family.name}{labels}` | {family.help} |")
    return "\n".join([*lines, ""])


def _compatible() -> str:
    lines = [COMPATIBLE_HEAD, "| labels | metrics |", "|---|---|"]
    for labels, rows in groupby(COMPATIBLE, key=lambda family: family.labels):
        lines.append(f"| {_words(labels) or '-'} | {_words(family.name for family in rows)} |")
    return "\n".join([*lines, ""])


def _words(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    click.echo(render(), nl=False)
