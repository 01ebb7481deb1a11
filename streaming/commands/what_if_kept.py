"""`rebalancer what-if --keep` and `--compare`: predictions that are kept, and how they are shown beside what came."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import click

from assignor_core.what_if import Changes
from assignor_core.what_if.predictions import Compared
from assignor_core.wording import counted
from streaming.commands.console import echo
from streaming.commands.plan_price import duration_text
from streaming.commands.what_if_text import changes_data, changes_text
from streaming.control.predictions import keep_prediction
from streaming.control.what_if import Prediction
from streaming.settings import Settings
from streaming.tables import TableReader, utc
from streaming.views.predictions import KeptPrediction, compared_predictions


def keep(prediction: Prediction, settings: Settings, *, now_ms: int) -> None:
    """Keep it under an id of its own, and show the id; raises TableUnavailable."""
    prediction_id = uuid.uuid4().hex[:12]
    keep_prediction(prediction, changes_data(prediction.changes), settings, prediction_id, now_ms=now_ms)
    echo(f"kept as prediction {prediction_id}: rebalancer what-if --compare shows it beside what came", err=True)


def show_comparison(settings: Settings, *, as_json: bool) -> int:
    """Print the newest kept predictions beside what came; raises TableUnavailable."""
    kept = compared_predictions(TableReader(settings.storage.tables), settings)
    if as_json:
        click.echo(json.dumps([_data(row) for row in kept]))
        return 0
    for row in kept:
        for line in _lines(row):
            echo(line)
    if not kept:
        echo("no prediction is kept yet: rebalancer what-if --keep keeps one")
    return 0


def _data(kept: KeptPrediction) -> dict[str, Any]:
    figures = {row.figure: {"predicted": row.predicted, "came": row.came, "error": row.error} for row in kept.rows}
    own = {"prediction_id": kept.prediction_id, "predicted_at_ms": kept.predicted_ms, "hours": kept.hours}
    return own | {"changes": kept.changes, "figures": figures}


def _lines(kept: KeptPrediction) -> Iterator[str]:
    at = f"{utc(kept.predicted_ms):%Y-%m-%d %H:%M} UTC"
    span = counted(kept.hours, "hour", "hours")
    yield f"prediction {kept.prediction_id} of {at}, for {span}: {changes_text(Changes(**kept.changes))}"
    for row in kept.rows:
        off = "" if row.error is None else f" ({row.error * 100:+.0f} %)"
        words = row.figure.removesuffix("_ms").replace("_", " ")
        yield f"  {words}: predicted {_shown(row, row.predicted)}, came {_shown(row, row.came)}{off}"


def _shown(row: Compared, value: float | None) -> str:
    if value is None:
        return "unknown"
    if row.figure == "duration_ms":
        return duration_text(value)
    if row.figure == "bytes_copied":
        return f"{value / 1e9:,.2f} GB"
    return f"{value:.0%}" if row.figure.endswith("headroom_left") else f"{value:.2f}"
