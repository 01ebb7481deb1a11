"""`python -m tests.prometheus.pictures [FOLDER]`: the demo, watched; its boards and its own plot, in docs/images."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streaming.demo.report import PLOT
from tests.docs.pictures import BOARDS, stamp
from tests.prometheus.boards import GRAFANA
from tests.prometheus.demo import CLUSTER, STORY_DEADLINE_S, watched_demo
from tests.waiting import until

FOLDER = Path(__file__).parents[2] / "docs" / "images"
BEFORE_S = 15.0
RECORDS = "1500000"
"""So many that the traffic outlasts the rebalance by a minute or two."""
NO_LONGER_SKEWED = "max(rebalancer_skew_breached) == 0 and max(rebalancer_rebalance_last_success_timestamp_seconds) > 0"


def main(folder: Path) -> None:
    """Run the demo until it counts as balanced, draw what the boards show from the first window on, and see it end."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        watched_demo(Path(temporary), "--records", RECORDS, stalled_after_s=300) as demo,
    ):
        ask = demo.watch.query
        until("a first window", lambda: ask("rebalancer_cluster_load_max_per_mean_ratio"), STORY_DEADLINE_S)
        first_window_s = time.time()
        # The traffic ends with the story, and without it there is nothing to be even.
        until("the end of the skew", lambda: ask(NO_LONGER_SKEWED) or demo.finished, STORY_DEADLINE_S)
        minutes = (time.time() - first_window_s + BEFORE_S) / 60
        script = [sys.executable, str(GRAFANA / "pictures.py"), demo.watch.prometheus_url, str(folder)]
        subprocess.run([*script, "--kafka-cluster", CLUSTER, "--minutes", f"{minutes:.2f}"], check=True)
        until("the demo's result", lambda: demo.finished, STORY_DEADLINE_S)
        shutil.copyfile(demo.home / PLOT, folder / "demo.png")
        for name in (*BOARDS, "demo"):
            stamp(folder / f"{name}.png")
        print("\n".join(demo.log.read_text().splitlines()[-20:]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
