"""What one evaluation of consumer lag takes, from the table `group_lag` to verdicts and reasons.

make bench-lag
make bench-lag ARGS="--groups 500"

`make bench-fleet` measures the collector's looks at groups.
"""

import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import click

from streaming.tables import TableReader
from streaming.views.group_picture import COLUMNS
from streaming.views.group_ranking import verdicts_by_group
from tests.benchmarks.generated import PARTITIONS_PER_TOPIC, WINDOW_MS, GeneratedCluster, Size, write_windows
from tests.lag.windows import judge


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Prints seconds by the clock and of CPU, the process's peak memory so far and how busy the machine is."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    click.echo(f"{what:46} {wall:6.2f} s, CPU {cpu:6.2f} s, peak {peak_mb:,.0f} MB, load {os.getloadavg()[0]:.1f}")


def write_lag(root: str, groups: int, windows: int) -> None:
    """Each group reads one topic of 50 partitions; of ten groups one falls behind, one hangs and one has ended."""
    size = Size(brokers=3, partitions=groups * PARTITIONS_PER_TOPIC, groups=groups)
    write_windows(root, size, GeneratedCluster(size), load_windows=0, lag_windows=windows)


@click.command()
@click.option("--groups", default=2_000, show_default=True, help="Each reads 50 partitions.")
@click.option("--windows", default=30, show_default=True, help="History read: 30 windows of a minute in production.")
def main(groups: int, windows: int) -> None:
    """Print seconds and megabytes of reading, judging and ranking, twice."""
    with tempfile.TemporaryDirectory() as home:
        root = str(Path(home) / "tables")
        # In a process of its own: what it takes to make the rows is not what it takes to judge them.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pool.submit(write_lag, root, groups, windows).result()
        click.echo(f"{groups:,} groups x {PARTITIONS_PER_TOPIC} partitions x {windows} windows")
        reader = TableReader(root)
        for _ in range(2):
            with timed("read the table"):
                rows = reader.arrow("group_lag", columns=COLUMNS)
            with timed("judge every partition"):
                picture = judge(rows, window_ms=WINDOW_MS)
            assert picture is not None
            with timed("groups and reasons"):
                verdicts = verdicts_by_group(picture)
            del rows, picture
        click.echo(f"verdicts: {dict(Counter(row.status for row in verdicts))}")


if __name__ == "__main__":
    main()
