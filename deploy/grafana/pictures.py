"""Pictures of the boards, for those who have no Grafana at hand: every panel of `dashboards/*.json`, drawn from the
panel's own PromQL, asked of a live Prometheus. They show what the boards say, not how Grafana looks.

    python deploy/grafana/pictures.py http://127.0.0.1:9090 FOLDER --kafka-cluster main --minutes 360

`python -m tests.prometheus.pictures` does this for the demo. Owns asking and layout; `panels.py` draws one panel.
"""

import argparse
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import matplotlib as mpl
from matplotlib.figure import Figure
from panels import FAINT, INK, Card, Loaded, Series, Timeline, draw, human

BOARDS = Path(__file__).parent / "dashboards"
COLUMNS = 24
COLUMN_INCHES = 0.62
UNIT_INCHES = 0.36
HEAD_INCHES = 0.75
GAP_INCHES = 0.06
POINTS = 240
PAPER = "#eef0f3"
FOOTNOTE = (
    "drawn by deploy/grafana/pictures.py from the board's own queries on a live Prometheus; no Grafana screenshot"
)


@dataclass(frozen=True, slots=True)
class Span:
    """A Prometheus, a cluster, and the time to look at, in seconds since 1970."""

    prometheus_url: str
    kafka_cluster: str
    start_s: float
    end_s: float

    def ask(self, target: Loaded) -> list[Series]:
        """Answer to a panel's query: over the span where the panel shows a span, else at its end."""
        expr = self.expression(target["expr"])
        if target.get("range", True):
            step = max(1.0, (self.end_s - self.start_s) / POINTS)
            span = {"start": self.start_s, "end": self.end_s, "step": step}
            result = self._get("query_range", {"query": expr, **span})
        else:
            result = self._get("query", {"query": expr, "time": self.end_s})
        return [_series(row, target.get("legendFormat", "")) for row in result]

    def expression(self, expr: str) -> str:
        """The query with Grafana's variables replaced: this cluster, all brokers, all groups."""
        window = f"{max(15.0, (self.end_s - self.start_s) / 60):.0f}s"
        chosen = {
            "$kafka_cluster": self.kafka_cluster,
            "$broker": ".+",
            "$consumergroup": ".+",
            "$__rate_interval": window,
        }
        for name, value in chosen.items():
            expr = expr.replace(name, value)
        return expr

    def _get(self, path: str, parameters: Mapping[str, Any]) -> list[Loaded]:
        answer = httpx.post(f"{self.prometheus_url}/api/v1/{path}", data=dict(parameters), timeout=30.0).json()
        if answer["status"] != "success":
            raise SystemExit(f"{parameters['query']}: {answer['error']}")
        rows: list[Loaded] = answer["data"]["result"]
        return rows


def _series(row: Loaded, legend: str) -> Series:
    points = row["values"] if "values" in row else [row["value"]]
    labels = row["metric"]
    name = re.sub(r"\{\{(\w+)\}\}", lambda match: str(labels.get(match.group(1), "")), legend)
    return Series(name, labels, tuple(float(at) for at, _ in points), tuple(float(value) for _, value in points))


def picture(board: Loaded, span: Span) -> Figure:
    """The whole board, panels where Grafana puts them."""
    panels = board["panels"]
    units = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = COLUMNS * COLUMN_INCHES, units * UNIT_INCHES + HEAD_INCHES
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    rebalances = span.ask({"expr": board["annotations"]["list"][0]["expr"]})
    timeline = Timeline(span.start_s, span.end_s, rebalances)
    for panel in panels:
        place = panel["gridPos"]
        left, bottom = place["x"] * COLUMN_INCHES, (units - place["y"] - place["h"]) * UNIT_INCHES
        size = (place["w"] * COLUMN_INCHES - 2 * GAP_INCHES, place["h"] * UNIT_INCHES - 2 * GAP_INCHES)
        card = Card(figure, (left + GAP_INCHES, bottom + GAP_INCHES, *size))
        if panel["type"] == "row":
            card.text(0.05, 0.05, panel["title"], fontsize=11, weight="bold", color=FAINT)
        else:
            draw(card, panel, [span.ask(target) for target in panel["targets"]], timeline)
    middle = 1 - HEAD_INCHES / 2 / height
    ended = datetime.fromtimestamp(span.end_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    footer = f"cluster {span.kafka_cluster}, {human(span.end_s - span.start_s, 's')} to {ended}\n{FOOTNOTE}"
    figure.text(0.1 / width, middle, board["title"], fontsize=17, weight="bold", color=INK, va="center")
    figure.text(1 - 0.1 / width, middle, footer, fontsize=8.5, color=FAINT, ha="right", va="center")
    return figure


def draw_all(span: Span, folder: Path) -> Iterator[Path]:
    """Write `FOLDER/<board>.png` for every board."""
    mpl.rcParams.update({"font.family": "DejaVu Sans"})
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(BOARDS.glob("*.json")):
        written = folder / f"{file.stem}.png"
        picture(json.loads(file.read_text(encoding="utf-8")), span).savefig(written, dpi=85)
        yield written


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prometheus_url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kafka-cluster", required=True)
    parser.add_argument("--minutes", type=float, default=360.0)
    chosen = parser.parse_args()
    end_s = time.time()
    span = Span(chosen.prometheus_url, chosen.kafka_cluster, end_s - 60 * chosen.minutes, end_s)
    for file in draw_all(span, chosen.folder):
        print(file)


if __name__ == "__main__":
    main()
