"""The committed boards, and what their panels get when a live Prometheus is asked."""

import json
import math
from pathlib import Path
from typing import Any

from tests.prometheus.live import Watch

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
BOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))

Board = dict[str, Any]


def panels(board: Board) -> list[dict[str, Any]]:
    """The panels that show something."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def without_numbers(board: Board, watch: Watch, kafka_cluster: str) -> list[str]:
    """Titles of panels and annotations whose queries give nothing, or what is no number; fails on a refused query."""
    empty = []
    for panel in panels(board):
        rows = [row for target in panel["targets"] for row in watch.query(with_values(target["expr"], kafka_cluster))]
        numbers = [float(row["value"][1]) for row in rows]
        if not numbers or any(math.isnan(number) for number in numbers):
            empty.append(f"{board['title']}, {panel['title']}: {numbers}")
    return empty


def with_values(expr: str, kafka_cluster: str) -> str:
    """The query as Grafana would send it with everything chosen."""
    chosen = {"$kafka_cluster": kafka_cluster, "$broker": ".+", "$consumergroup": ".+", "$__rate_interval": "30s"}
    for name, value in chosen.items():
        expr = expr.replace(name, value)
    return expr


def load(file: Path) -> Board:
    """A committed board."""
    board: Board = json.loads(file.read_text())
    return board
