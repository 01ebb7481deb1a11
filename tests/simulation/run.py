"""The fault simulation as a command: any number of stories, and with 200 or more of them all planted faults.

    make simulate-faults ARGS="--seeds 1000 --first 1"

A broken invariant is shown with its seed, the trace around it and the command that tells the story again. The last line
is one JSON object; exit code 1 where an invariant broke or a planted fault was not caught.
"""

import argparse
import gc
import json
import logging
import sys
import time
from collections import Counter

import structlog

from tests.simulation.clusters import run_clusters_story
from tests.simulation.crossings import CROSSINGS
from tests.simulation.folders import run_folder_story
from tests.simulation.known import KNOWN
from tests.simulation.monitor import Broken
from tests.simulation.planted import PLANTED
from tests.simulation.relief import run_relief_story
from tests.simulation.samples import run_sample_story
from tests.simulation.story import PlayedStory, run_story
from tests.simulation.within import run_within_story

EVERY_PLANTED = (*PLANTED, *CROSSINGS)
LINES_BEFORE, LINES_AFTER = 25, 5
PLANTED_SEEDS_MAX = 200
KINDS = {
    "faults": run_story,
    "folders": run_folder_story,
    "samples": run_sample_story,
    "relief": run_relief_story,
    "within": run_within_story,
    "clusters": run_clusters_story,
}
BY_LAST_DIGIT = {0: "folders", 3: "relief", 5: "samples", 8: "within"}
"""Of which kind the story of a seed is, by its last digit; of all others it is one of faults. Stories of several
clusters are told with `--story` alone: each costs as much as six others.
"""


def main() -> int:
    """Tell the stories; returns the exit code."""
    parser = argparse.ArgumentParser(description="Control over simulated clusters, with faults from seeds")
    parser.add_argument("--seeds", type=int, default=200, help="how many stories")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--trace", action="store_true", help="show the whole trace of every story")
    parser.add_argument("--planted", action="store_true", help="planted faults, too, however few stories")
    parser.add_argument("--story", choices=KINDS, help="tell stories of this kind only")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    # What the imports have made stays: to look through it again and again took a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    faults: Counter[str] = Counter()
    executions, broken, expected = 0, [], Counter[str]()
    for seed in range(options.first, options.first + options.seeds):
        played = KINDS[options.story or BY_LAST_DIGIT.get(seed % 10, "faults")](seed)
        faults, executions = faults + played.faults, executions + played.executions
        if options.trace:
            print(*played.trace, sep="\n")
        for row in played.broken:
            if row.invariant in KNOWN:
                expected[f"{row.invariant}: {KNOWN[row.invariant]}"] += 1
            else:
                broken.append({"seed": seed, "invariant": row.invariant})
                print(report(played, row))
    elapsed_s, elapsed_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    for name, count in sorted(expected.items()):
        print(f"{count} stories break a known finding: {name}")
    # They take minutes: who looks at one story waits for none of them.
    planted = range(len(EVERY_PLANTED)) if options.planted or options.seeds >= PLANTED_SEEDS_MAX else ()
    if not planted:
        print(f"planted faults are not run with fewer than {PLANTED_SEEDS_MAX} stories, unless --planted asks for them")
    caught = sum(_is_caught(index, options.first) for index in planted)
    result = {
        "seeds": options.seeds,
        "stories_per_s": round(options.seeds / elapsed_s, 2),
        "stories_per_cpu_s": round(options.seeds / elapsed_cpu_s, 2),
        "executions": executions,
        "faults": dict(sorted(faults.items())),
        "planted_caught": caught,
        "planted": len(planted),
        "broken": broken,
    }
    print(json.dumps(result))
    return 1 if broken or caught < len(planted) else 0


def report(played: PlayedStory, row: Broken) -> str:
    """A broken invariant for a person: the trace around it, and how to see it again."""
    lines = played.trace[max(0, row.line - LINES_BEFORE) : row.line + LINES_AFTER]
    again = f'make simulate-faults ARGS="--seeds 1 --first {played.seed} --trace{played.kind}"'
    return "\n".join([f"seed {played.seed} breaks {row.invariant}: {row.detail}", *lines, f"again: {again}", ""])


def _is_caught(index: int, first: int) -> bool:
    """Whether some story catches a planted fault; how many that took is printed."""
    planted = EVERY_PLANTED[index]
    # Some need a rare story: their own seed comes last.
    for count, seed in enumerate((*range(first, first + PLANTED_SEEDS_MAX), planted.seed), start=1):
        if planted.caught_by(seed):
            print(f"planted: {planted.name}: caught by seed {seed}, after {count}")
            return True
    print(f"planted: {planted.name}: NOT caught by {PLANTED_SEEDS_MAX} seeds and its own")
    return False


if __name__ == "__main__":
    sys.exit(main())
