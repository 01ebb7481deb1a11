"""Grafana's JSON from the boards beside this file: `python deploy/grafana/generate.py [FOLDER]`, one file a board.

`boards/*.yml` hold what is asked and why; here is what all boards share: variables, links between them, rebalances as
annotations, looks. In a query `C` stands for the matcher of the chosen cluster, `B` and `G` for those of broker and
consumer group. A test runs this again and compares.
"""

import json
import sys
from itertools import count
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import yaml
from grafana_foundation_sdk.builders import bargauge, dashboard, stat, statushistory, table, timeseries
from grafana_foundation_sdk.builders import prometheus as prometheus_query
from grafana_foundation_sdk.builders.common import ReduceDataOptions, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueTextMode,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    GridPos,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
MATCHERS = {"C": 'kafka_cluster="$kafka_cluster"', "B": 'broker=~"$broker"', "G": 'consumergroup=~"$consumergroup"'}
COLUMNS = 24
DEFAULT_WIDTH = 8
OVER_TIME = frozenset({"lines", "strip"})
"""Kinds of panel that show a span; the others show the present."""
TAG = "kafka-load-rebalancer"
NOT_OF_QUERY_VARIABLES = ("auto", "auto_min", "auto_count")
"""The library writes these of interval variables into every variable; Grafana's own types don't have them there."""

Loaded = dict[str, Any]
AnyPanel = bargauge.Panel | stat.Panel | statushistory.Panel | table.Panel | timeseries.Panel


def render(uid: str, board: Loaded) -> str:
    """The board as the JSON that Grafana imports and provisions."""
    built = (
        dashboard.Dashboard(board["title"])
        .uid(uid)
        .description(board["description"])
        .tags([TAG])
        .editable()
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(_links())
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source"))
        .with_variable(_variable("kafka_cluster", "rebalancer_window_seconds", several=False))
        .annotation(_rebalances())
    )
    for name, metric in board.get("variables", {}).items():
        built = built.with_variable(_variable(name, expression(f"{metric}{{C}}"), several=True))
    top = 0
    numbers = count(1)
    for row in board["rows"]:
        heading = dashboard.Row(row["title"]).id(next(numbers))
        built = built.with_row(heading.grid_pos(GridPos(h=1, w=COLUMNS, x=0, y=top)))
        for panel, place in _placed(row["panels"], row["height"], top + 1):
            built = built.with_panel(_panel(panel).id(next(numbers)).grid_pos(place))
            top = place.y + row["height"]
    finished: Loaded = json.loads(JSONEncoder().encode(built.build()))
    for variable in finished["templating"]["list"]:
        for name in NOT_OF_QUERY_VARIABLES:
            variable.pop(name, None)
    return json.dumps(finished, sort_keys=True, indent=2) + "\n"


def _placed(panels: list[Loaded], height: int, top: int) -> list[tuple[Loaded, GridPos]]:
    """Panels side by side, on a new line where the columns are full."""
    placed = []
    left = 0
    for panel in panels:
        width = panel.get("width", DEFAULT_WIDTH)
        if left + width > COLUMNS:
            left, top = 0, top + height
        placed.append((panel, GridPos(h=height, w=width, x=left, y=top)))
        left += width
    return placed


def _panel(panel: Loaded) -> AnyPanel:
    kind = panel["kind"]
    shape: Any = SHAPES[kind]()  # a kind has what its panels use; the library has no type for what all kinds share
    shape = shape.title(panel["title"]).description(panel["description"]).unit(panel["unit"]).datasource(SOURCE)
    if "none" in panel:
        shape = shape.no_value(panel["none"])
    if panel.get("names"):
        shape = shape.text_mode(BigValueTextMode.NAME)
    if "steps" in panel:
        shape = shape.thresholds(_steps(panel["steps"]))
    for reference, query in zip(ascii_uppercase, panel["queries"], strict=False):
        shape = shape.with_target(_target(query, reference, kind))
    whole: AnyPanel = _with_columns(shape, panel["queries"]) if kind == "table" else shape
    return whole


def _target(query: Loaded, reference: str, kind: str) -> prometheus_query.Dataquery:
    target = prometheus_query.Dataquery().expr(expression(query["expr"])).legend_format(query["legend"])
    target = target.ref_id(reference).datasource(SOURCE)
    if kind == "table":
        target = target.format(PromQueryFormat.TABLE)
    return target.range() if kind in OVER_TIME else target.instant()


def expression(short: str) -> str:
    """PromQL with the variables' matchers in place of their letters.

    >>> expression('up{C} + x{C,a="b"}')
    'up{kafka_cluster="$kafka_cluster"} + x{kafka_cluster="$kafka_cluster",a="b"}'
    """
    for letter, matcher in MATCHERS.items():
        short = short.replace(f"{{{letter}}}", f"{{{matcher}}}").replace(f"{{{letter},", f"{{{matcher},")
        short = short.replace(f",{letter}}}", f",{matcher}}}")
    return short


def _stat() -> stat.Panel:
    return stat.Panel().reduce_options(ReduceDataOptions().calcs(["lastNotNull"])).orientation(VizOrientation.AUTO)


def _bars() -> bargauge.Panel:
    return (
        bargauge.Panel()
        .display_mode(BarGaugeDisplayMode.BASIC)
        .orientation(VizOrientation.HORIZONTAL)
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
    )


def _lines() -> timeseries.Panel:
    dashed = DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [8, 6]})
    grey = DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": "text"})
    legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    return (
        timeseries.Panel()
        .draw_style(GraphDrawStyle.LINE)
        .line_width(2)
        .fill_opacity(4)
        .legend(legend.show_legend(True))
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .override_by_regexp("/^(threshold|mean$)/", [dashed, grey])
    )


def _strip() -> statushistory.Panel:
    return statushistory.Panel().row_height(0.9).col_width(1)


SHAPES = {"stat": _stat, "bars": _bars, "lines": _lines, "table": table.Panel, "strip": _strip}


def _with_columns(shape: table.Panel, queries: list[Loaded]) -> table.Panel:
    """One line a broker: the queries side by side, named, with units by name."""
    names = {f"Value #{letter}": query["legend"] for letter, query in zip(ascii_uppercase, queries, strict=False)}
    hidden = {"Time": True, "Value #A": True}
    shape = shape.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    shape = shape.with_transformation(
        DataTransformerConfig(id_val="organize", options={"excludeByName": hidden, "renameByName": names})
    )
    units = {"/[/]s$/": "Bps", "/disk/": "bytes", "/off mean/": "percentunit"}
    for pattern, unit in units.items():
        shape = shape.override_by_regexp(pattern, [DynamicConfigValue(id_val="unit", value=unit)])
    return shape


def _steps(steps: list[tuple[float, str]]) -> dashboard.ThresholdsConfig:
    """`steps` are (from this value on, colour); what is below the first is green, or red where the first is green."""
    below = "red" if steps[0][1] == "green" else "green"
    rising = [Threshold(value=None, color=below), *(Threshold(value=value, color=colour) for value, colour in steps)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(rising)


def _variable(name: str, metric: str, *, several: bool) -> dashboard.QueryVariable:
    variable = (
        dashboard.QueryVariable(name)
        .label(name)
        .datasource(SOURCE)
        .query(f"label_values({metric}, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(several)
        .include_all(several)
    )
    # `.+`, not `.*`: a series without the label would otherwise count twice in totals.
    return variable.all_value(".+") if several else variable


def _rebalances() -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name("rebalances")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("purple")
        .expr(expression("rebalancer_rebalance_in_progress{C} == 1"))
    )


def _links() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Rebalancer boards")
        .type(DashboardLinkType.DASHBOARDS)
        .icon("external link")
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
    )


def main(folder: Path) -> None:
    """Write every board below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted((Path(__file__).parent / "boards").glob("*.yml")):
        board = yaml.safe_load(file.read_text(encoding="utf-8"))
        (folder / f"{file.stem}.json").write_text(render(file.stem, board), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "dashboards")
