"""`rebalancer simulate`: a group's rebalances from a scenario file, as text, JSON and a picture."""

import gc
import json
from pathlib import Path

import click

from assignor_core.group.simulation import simulate as run_scenario
from assignor_core.group.trace import trace_text
from streaming.commands.console import echo, write_whole
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.simulate.scenario_file import Variant, load_scenarios, scenarios_from
from streaming.simulate.summary import page_of, summary_json, summary_text


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--group", help="Simulate a rolling restart of this group, as the tables show it, instead of a file.")
@click.option(
    "--out", "out_file", type=click.Path(path_type=Path), help="With --group: also write the scenario to this file."
)
@settings_options
@json_option
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write a page with picture and figures.")
@click.option("--png", "png_file", type=click.Path(path_type=Path), help="Write the picture.")
@click.option("--trace", "as_trace", is_flag=True, help="Print one line for each thing that happened instead.")
def simulate(
    file: Path | None,
    group: str | None,
    out_file: Path | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
    html_file: Path | None,
    png_file: Path | None,
    as_trace: bool,
) -> int:
    """What a group goes through in a scenario (YAML or TOML): who stops, what moves, what nobody reads, how long.

    A file may hold several variants, such as eager, cooperative and static; they are shown beside each other.
    """
    if as_json and as_trace:
        raise UsageProblem("simulate: --json and --trace can't go together: both choose what is printed")
    variants = _variants(file, group, out_file, config_file, assignments)
    # A run keeps all that it makes: looking through it for garbage again and again takes a tenth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        runs = [(variant, run_scenario(variant.scenario)) for variant in variants]
    finally:
        if collecting:
            gc.enable()
    if html_file is not None or png_file is not None:
        from streaming.simulate.plot import plot, png_of

        png = png_of(plot(runs, runs[0][0].title))
        if png_file is not None:
            write_whole("--png", png_file, png)
        if html_file is not None:
            write_whole("--html", html_file, page_of(runs, png).encode())
    if as_json:
        click.echo(json.dumps(summary_json(runs), indent=2))
    elif as_trace:
        for variant, run in runs:
            echo(f"# {variant.name}\n{trace_text(run.trace)}" if variant.name else trace_text(run.trace), nl=False)
    else:
        from streaming.commands.console import console

        console().print(summary_text(runs))
    return 0


def _variants(
    file: Path | None, group: str | None, out_file: Path | None, config_file: Path | None, assignments: tuple[str, ...]
) -> tuple[Variant, ...]:
    if (file is None) == (group is None):
        raise UsageProblem("simulate needs a scenario file or --group NAME, and not both")
    if file is not None:
        if out_file is not None:
            raise UsageProblem("simulate: --out writes the scenario of --group; there is one in a file already")
        return load_scenarios(file)
    import yaml

    from streaming.simulate.from_group import scenario_of_group
    from streaming.tables import TableReader

    assert group is not None, "one of the two is given"
    settings = settings_from(config_file, assignments)
    reader = TableReader(settings.storage.tables)
    content = scenario_of_group(reader, settings.kafka.cluster_name, group, window_ms=settings.pipeline.window_ms)
    if out_file is not None:
        write_whole("--out", out_file, yaml.safe_dump(content, sort_keys=False).encode())
    return scenarios_from(content, f"group {group}")
