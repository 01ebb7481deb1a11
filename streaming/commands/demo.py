"""`rebalancer demo`: the main job on embedded brokers."""

from pathlib import Path

import click

DEFAULT_HOME = "demo-home"


@click.command()
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_HOME, show_default=True,
              help="Folder of brokers, tables and report; what an earlier demo left there is cleared.")  # fmt: skip
@click.option("--records", type=click.IntRange(min=0), default=0,
              help="Send at least this many records to topic A; 100000000 is the founding example's size.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=100, max=200_000), default=8_000.0, show_default=True,
              help="Records per second to topic A; topic B gets one for every 10,000.")  # fmt: skip
@click.option("--topics", default="topic-A,topic-B", show_default=True, metavar="A,B", help="Names of both topics.")
@click.option(
    "--keep", is_flag=True, help="Leave everything running at the end, until Ctrl-C, traffic and readers too."
)
@click.option(
    "--propose",
    is_flag=True,
    help="Make the plan and wait until you approve it on the page, or carry it out with `rebalancer apply`.",
)
def demo(home: Path, records: int, rate: float, topics: str, keep: bool, propose: bool) -> int:
    """The founding example on three embedded brokers: skewed, detected, planned, moved, measured.

    Exit code 0: balanced within 1.05 as measured on the brokers, and no
    acknowledged record lost.
    """
    from streaming.commands.console import console
    from streaming.demo.run import Demo, DemoOrder
    from streaming.demo.scenario import FoundingScenario

    names = [name.strip() for name in topics.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise click.BadParameter(f"{topics!r} is not two different names, like topic-A,topic-B", param_hint="--topics")
    scenario = FoundingScenario(topic_a=names[0], topic_b=names[1], records_per_sec=rate)
    return Demo(DemoOrder(home, scenario, records, keep, propose), console()).run()
