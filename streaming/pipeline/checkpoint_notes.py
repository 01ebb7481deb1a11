"""What the pipeline notes beside Spark's checkpoints, in one file: what they were made with, and which folder each
window query continues.

A change of the number of state partitions needs new checkpoints, as Spark never changes that number. Each such change
is a generation: the queries then write below `byte_rate-1`, `byte_rate-2` and so on, and begin at noted offsets. The
file is replaced as a whole, so after a kill either the old generation is in use or the new one. This module knows
neither what the queries compute nor when a generation begins (`state_partitions.py`).
"""

import json
from collections.abc import Mapping
from typing import Any

from streaming.errors import UsageProblem
from streaming.pipeline.checkpoint_files import CheckpointFiles
from streaming.pipeline.offsets import Offsets, newest_planned, offsets_of

FINGERPRINT = "fingerprint.json"
MADE_WITH, TOPIC_IDS = "made_with", "topic_ids"
NOTED_SINCE = "batches_noted_since"
"""Key in the file: for each query the first batch since which every batch leaves its id in every table."""
STATE_PARTITIONS = "pipeline.shuffle_partitions"
"""Key below `MADE_WITH`: the number of partitions that the state of the window queries has."""
WINDOW_QUERIES = ("byte_rate", "consumer_lag")
"""The queries that have a state, and so generations; the checkpoint of the rejects has none."""
GENERATION, BEGIN = "generation", "begin"
"""Keys in the file: the number of the checkpoints in use, and the offsets at which each query began them."""

TWO_WAYS_OUT = (
    "set it back, or name a new folder in storage.checkpoints: it reads the topics from their start, and a window that "
    "is fuller in the tables stays as it is"
)


def noted(checkpoints: str) -> dict[str, Any] | None:
    """Return the file's content, None where there is none. Raises UsageProblem, TableUnavailable."""
    try:
        content: dict[str, Any] = json.loads(CheckpointFiles(checkpoints).read(FINGERPRINT))
        return {**content, MADE_WITH: dict(content[MADE_WITH]), TOPIC_IDS: dict(content[TOPIC_IDS])}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageProblem(
            f"checkpoint file {checkpoints}/{FINGERPRINT} can't be read ({type(error).__name__}): {TWO_WAYS_OUT}"
        ) from None


def note(checkpoints: str, content: Mapping[str, object]) -> None:
    """Replace the file's content."""
    CheckpointFiles(checkpoints).write(FINGERPRINT, json.dumps(content, indent=2, sort_keys=True) + "\n")


def generation_of(checkpoints: str) -> int:
    """Return the number of the checkpoints in use, 0 for the first ones. Raises as `noted` does."""
    return int((noted(checkpoints) or {}).get(GENERATION, 0))


def folder_name(query: str, generation: int) -> str:
    """Return the folder of a window query's checkpoint.

    >>> folder_name("byte_rate", 0), folder_name("byte_rate", 2)
    ('byte_rate', 'byte_rate-2')
    """
    return f"{query}-{generation}" if generation else query


def query_files(checkpoints: str, query: str) -> CheckpointFiles:
    """Return the files of the checkpoint that a query continues. Raises as `noted` does."""
    generation = generation_of(checkpoints) if query in WINDOW_QUERIES else 0
    return CheckpointFiles(checkpoints).below(folder_name(query, generation))


def begin_of(checkpoints: str, query: str) -> Offsets:
    """Return the offsets at which the checkpoint of a window query began; empty: at the start of its topics.

    Raises as `noted` does.
    """
    return offsets_of((noted(checkpoints) or {}).get(BEGIN, {}).get(query))


def read_up_to(checkpoints: str, query: str) -> Offsets:
    """Return where the newest batch of a window query ends; before its first batch, the offsets at which it begins.

    Raises as `noted` and `offsets.planned` do.
    """
    return newest_planned(query_files(checkpoints, query)) or begin_of(checkpoints, query)
