"""Small volumes of their own as log dirs of brokers: memory that is mounted as root, and given back."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S

MIB = 2**20
RECORD = b"x" * 65_536
OF_OTHERS = "of-others"
DELETED_AT_ONCE = {"log.segment.delete.delay.ms": "100", "log.initial.task.delay.ms": "100"}
"""Broker settings: by default a log that has left is deleted a minute later, and the first one 30 s after a start."""


class MountingNotPermitted(Exception):
    """This process may not mount a volume; the message is the system's."""


def create_filled_topic(
    admin: KafkaAdminClient, servers: list[str], topic: str, replicas: Mapping[int, list[int]], *, replica_bytes: int
) -> None:
    """A topic with these replicas by partition; each holds so many bytes once it is in sync."""
    admin.create_topics({topic: {"assignments": replicas}})
    wait_until_known(admin, [topic])
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    for _ in range(replica_bytes // len(RECORD)):
        for number in replicas:
            producer.send(topic, RECORD, partition=number)
    producer.flush()
    producer.close()


@contextmanager
def mounted(*folders: Path, size_bytes: int) -> Iterator[None]:
    """A volume of this size at each folder; skips the test where mounting is not permitted."""
    try:
        with volumes(*folders, size_bytes=size_bytes):
            yield
    except MountingNotPermitted as error:
        pytest.skip(f"a small volume needs the right to mount: {error}")


@contextmanager
def volumes(*folders: Path, size_bytes: int) -> Iterator[None]:
    """A volume of this size at each folder; raises MountingNotPermitted."""
    with ExitStack() as stack:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
            except (OSError, subprocess.CalledProcessError) as error:
                raise MountingNotPermitted(str(error)) from error
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False, timeout=DEADLINE_S)
        yield


def fill(folder: Path, *, usable_bytes: int) -> None:
    """Write a file of others than Kafka into the volume, so that so much is left."""
    chunk = b"\0" * MIB
    with (folder / OF_OTHERS).open("ab") as file:
        while (left := usable(folder) - usable_bytes) > 0:
            file.write(chunk[:left])
            file.flush()


def empty(folder: Path) -> None:
    """Remove the file that `fill` has written."""
    (folder / OF_OTHERS).unlink(missing_ok=True)


def usable(folder: Path) -> int:
    """Bytes that are free in the volume."""
    figures = os.statvfs(folder)
    return figures.f_bavail * figures.f_frsize


def remove_second_copies(left: Path, kept: Path) -> list[str]:
    """Remove from the log dir `left` the partitions that the log dir `kept` has, too; returns their names.

    Kafka gives a copy the name of its partition, and only then renames the replica that it replaces. A broker that is
    killed in between has two and doesn't start: docs/drain-and-add.md says what to do, and this does it.
    """
    in_left, in_kept = ({row.name for row in log_dir.iterdir() if row.is_dir()} for log_dir in (left, kept))
    twice = sorted(in_left & in_kept)
    for name in twice:
        shutil.rmtree(left / name)
    return twice
