"""docs/prometheus-source.md has every preset with its series and labels."""

from streaming.collect.counters import PRESETS, Preset
from streaming.runtime.jars import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs" / "prometheus-source.md").read_text(encoding="utf-8")
BY_HAND = "set `prometheus_broker_pattern` or `prometheus_broker_ids`"


def row(name: str, preset: Preset) -> str:
    """The line of one preset, as it has to be."""
    series = preset.metric.format(meter="bytesin")
    if preset.meter_label is not None:
        series += f'{{{preset.meter_label}="BytesInPerSec"}}'
    pattern = BY_HAND if preset.broker_pattern is None else f"`{preset.broker_pattern}`"
    return f"| `{name}` | `{series}` | `{preset.broker_label}` | {pattern} |"


def test_each_preset_stands_there_once() -> None:
    table = PAGE.partition("| `prometheus_preset` |")[2].partition("\n\n")[0].splitlines()[2:]
    assert table == [row(name, preset) for name, preset in PRESETS.items()]
