"""What lies in the checkpoints: Spark's own files, the offsets in them, and a file of notes of ours beside them.

Files are in a folder, or on an object store, which is read without a JVM. Spark writes its own with rename or, on S3,
copy. The notes say what the checkpoints were made with, and which folder each window query continues. A change of the
number of state partitions needs new checkpoints, as Spark never changes that number. Each such change is a generation:
the queries then write below `byte_rate-1`, `byte_rate-2` and so on, and begin at noted offsets. The notes are replaced
as a whole, so after a kill either the old generation is in use or the new one. This module knows neither what the
queries compute nor when a generation begins (`state_partitions.py`).
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from deltalake._internal import DeltaFileSystemHandler
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from streaming.errors import TableUnavailable, UsageProblem
from streaming.tables import first_line
from streaming.tables.object_stores import storage_options
from streaming.tables.places import is_uri, local_folder

Offsets = dict[tuple[str, str], int]
"""Next offset to be read, by topic and partition (both as Spark writes them)."""
_LINES_BEFORE_SOURCES = 2
"""A version and the batch's settings."""
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


class CheckpointFiles:
    """Files below a folder, or below a URI of an object store. Names are relative, with slashes."""

    def __init__(self, place: str) -> None:
        self._given = place.rstrip("/")
        self._folder = local_folder(self._given)
        self.place = self._given if self._folder is None else str(self._folder)

    @property
    def for_spark(self) -> str:
        """The place in Spark's spelling: what follows `file:` is literal there. A path alone would lie on the default
        file system, which may be HDFS.
        """
        return f"file://{self._folder}" if self._folder is not None and is_uri(self._given) else self.place

    def below(self, name: str) -> Self:
        """Returns the files of the folder `name` below this place."""
        return type(self)(f"{self._given}/{name}")

    def read(self, name: str) -> str:
        """The file's text. Raises FileNotFoundError, OSError of a folder, TableUnavailable of an object store."""
        if self._folder is not None:
            return (self._folder / name).read_text(encoding="utf-8")
        try:
            with self._store().open_input_stream(name) as stream:
                return bytes(stream.read()).decode()
        except FileNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            raise TableUnavailable(f"{self.place}/{name} can't be read: {first_line(error)}") from None

    def write(self, name: str, text: str) -> None:
        """Put it there as a whole: a reader sees the old text or the new one. Raises as `read` does."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh = self._folder / f"{name}.new"
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, self._folder / name)
            return
        try:
            # Arrow's stream on it would hand over buffers, which delta-rs refuses.
            files: Any = DeltaFileSystemHandler(self.place, storage_options(self.place))  # its stub lacks close
            stream = files.open_output_stream(name)
            stream.write(text.encode())
            stream.close()
        except (DeltaError, OSError) as error:
            raise TableUnavailable(f"{self.place}/{name} can't be written: {first_line(error)}") from None

    def numbers(self, folder: str) -> list[int]:
        """Names of files in `folder` that are whole numbers, such as batches; raises as `read` does."""
        if self._folder is not None:
            names = [path.name for path in (self._folder / folder).glob("[0-9]*")]
        else:
            try:
                found = self._store().get_file_info(FileSelector(folder, allow_not_found=True))
            except (DeltaError, OSError) as error:
                raise TableUnavailable(f"{self.place}/{folder} can't be listed: {first_line(error)}") from None
            names = [Path(info.path).name for info in found]
        return [int(name) for name in names if name.isdigit()]

    def _store(self) -> PyFileSystem:
        return PyFileSystem(DeltaStorageHandler(self.place, storage_options(self.place)))


def offsets_of(noted: str | Mapping[str, Mapping[str, int]] | None) -> Offsets:
    """Returns the offsets of one source; empty if there are none, as before the first batch.

    >>> offsets_of('{"load": {"0": 7}}')
    {('load', '0'): 7}
    """
    by_topic = json.loads(noted) if isinstance(noted, str) else noted
    return {
        (topic, partition): offset for topic, rows in (by_topic or {}).items() for partition, offset in rows.items()
    }


def by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the offsets in the form that Spark writes and reads.

    >>> by_topic({("load", "0"): 7, ("load", "1"): 9})
    {'load': {'0': 7, '1': 9}}
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[partition] = offset
    return topics


def planned(checkpoint: CheckpointFiles, batch_id: int) -> Offsets:
    """The offsets where the batch ends. Raises OSError if they are not noted, TableUnavailable."""
    lines = checkpoint.read(f"offsets/{batch_id}").splitlines()
    return {key: end for line in lines[_LINES_BEFORE_SOURCES:] for key, end in offsets_of(json.loads(line)).items()}


def records_planned(checkpoint: CheckpointFiles, batch_id: int) -> int:
    """How many records are in the batch at most, skipped offsets included. Raises as `planned` does."""
    before = planned(checkpoint, batch_id - 1) if batch_id else {}
    return sum(end - before.get(key, 0) for key, end in planned(checkpoint, batch_id).items())


def newest_planned(checkpoint: CheckpointFiles) -> Offsets:
    """Returns the offsets where the newest batch ends; empty if there has been none. Raises as `planned` does."""
    batches = checkpoint.numbers("offsets")
    return planned(checkpoint, max(batches)) if batches else {}


def watermark_ms(checkpoint: CheckpointFiles, batch_id: int) -> int:
    """The watermark of the planned batch, 0 before there is one. Raises as `planned`; ValueError, KeyError."""
    settings = json.loads(checkpoint.read(f"offsets/{batch_id}").splitlines()[1])
    return int(settings["batchWatermarkMs"])


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
    """Offsets at which the checkpoint of a window query began, empty: at the start of topics. Raises as `noted`."""
    return offsets_of((noted(checkpoints) or {}).get(BEGIN, {}).get(query))


def read_up_to(checkpoints: str, query: str) -> Offsets:
    """End of the newest batch of a window query, else the query's begin. Raises as `noted` and `planned` do."""
    return newest_planned(query_files(checkpoints, query)) or begin_of(checkpoints, query)
