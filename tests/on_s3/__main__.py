"""`python -m tests.on_s3 COMMAND`: runs on an S3 server of their own. `make on-s3 ARGS="..."`."""

from pathlib import Path

import click


@click.group()
def main() -> None:
    """Run the product with tables and checkpoints on S3."""


@main.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--rate", default=1_000.0, show_default=True, help="Records/s of the users' traffic.")
@click.option("--report", type=click.Path(path_type=Path), help="File for all figures, a JSON line a minute.")
def soak(minutes: float, rate: float, report: Path | None) -> None:
    """All roles under load: objects, requests and memory by the minute."""
    from tests.on_s3.soak import soak as run

    run(minutes, rate, report)


@main.command()
@click.option("--pipeline-kills", default=10, show_default=True)
@click.option("--control-kills", default=5, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--rate", default=2_000.0, show_default=True, help="Records/s of the users' traffic.")
@click.option("--home", type=click.Path(path_type=Path), help="Folder for logs, kept afterwards.")
def kills(pipeline_kills: int, control_kills: int, seed: int, rate: float, home: Path | None) -> None:
    """From skew to the measured result, with kill -9 of pipeline and control; the tables must equal a recount."""
    from tests.on_s3.kills import kills as run

    run(pipeline_kills, control_kills, seed, rate, home)


@main.command()
@click.option("--commits", default=1_000, show_default=True)
@click.option("--processes", default=4, show_default=True)
@click.option("--lost", is_flag=True, help="Of each ninth answer to a commit nothing arrives.")
def contended(commits: int, processes: int, lost: bool) -> None:
    """Appends, then turns at the lease, of several processes at once: no version and no turn has two winners."""
    from tests.on_s3.contended import run_both

    run_both(commits, processes, lost_answers=lost)


@main.command()
@click.option("--kills", default=5, show_default=True, help="Of each kind of place.")
def take_over(kills: int) -> None:
    """Kill the holder of control's lease; how long the other needs, with tables in a folder and on S3."""
    from tests.on_s3.take_over import take_over as run

    run(kills)


@main.command()
@click.option("--brokers", default=(3, 10, 30), show_default=True, multiple=True, help="Sizes; 3 has 100 partitions.")
def cost(brokers: tuple[int, ...]) -> None:
    """Count requests of a batch, of looks and of the upkeep by the size of the fleet."""
    from tests.on_s3.cost import cost as run

    run(brokers)


if __name__ == "__main__":
    main()
