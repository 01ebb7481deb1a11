"""Groups of the newer protocols on real brokers: members in Java, Kafka's own tools, and what ours show of them."""

import re
from typing import Any

from streaming.commands.lag import read_lag
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import Settings
from tests.kafka.real_groups import HEARTBEAT_MS, SESSION_MS, JavaProcess

KINDS = ("consumer", "share", "streams")
END = "---"
WITH_TOOLS: dict[str, Any] = {"heap": "400m", "jars_of": ("broker", "tools")}
"""A JVM with Kafka's tools and streams beside its clients."""
Table = list[dict[str, str]]
Row = dict[str, Any]


def broker_settings() -> dict[str, str]:
    """Of one broker: sessions as short as those of our classic members, and share groups without copies of state."""
    timeouts = {
        "min.session.timeout.ms": SESSION_MS, "session.timeout.ms": SESSION_MS,
        "min.heartbeat.interval.ms": HEARTBEAT_MS, "heartbeat.interval.ms": HEARTBEAT_MS,
    }  # fmt: skip
    return {f"group.{kind}.{name}": str(value) for kind in KINDS for name, value in timeouts.items()} | {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "2",
    }


class GroupTools(JavaProcess):
    """Kafka's kafka-consumer-groups, kafka-share-groups and kafka-streams-groups."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__("GroupTools.java", **WITH_TOOLS)
        self._servers = ",".join(cluster.bootstrap_servers)

    def answer(self) -> list[str]:
        """Lines of the standard output up to the end of an answer."""
        answer: list[str] = []
        for line in self.lines:
            if line.strip() == END:
                return answer
            answer.append(line.rstrip("\n"))
        raise AssertionError(f"the process ended: {answer}")

    def describe(self, kind: str, group: str, *options: str) -> Table:
        """Rows of the table by the names of its columns; empty cells are left out of their row."""
        self.send(kind, "--bootstrap-server", self._servers, "--describe", "--group", group, *options)
        lines = [line for line in self.answer() if line.strip()]
        heads = [number for number, line in enumerate(lines) if line.startswith("GROUP ")]
        if not heads:
            return []
        head = lines[heads[0]]
        starts = [match.start() for match in re.finditer(r"\S+( \(ID\))?", head)]
        names = re.findall(r"\S+(?: \(ID\))?", head)
        spans = list(zip(names, starts, [*starts[1:], None], strict=True))
        cells = [line for line in lines[heads[0] + 1 :] if not line.startswith("GROUP ")]
        rows = [{name: line[begin:end].strip() for name, begin, end in spans} for line in cells]
        return [{name: cell for name, cell in row.items() if cell} for row in rows]


def partitions_in(cell: str) -> set[tuple[str, int]]:
    """Of an assignment as the tools show it: `orders:0,1;bills:2`."""
    if cell in ("", "-"):
        return set()
    topics = [part.rsplit(":", 1) for part in cell.split(";")]
    return {(topic, int(number)) for topic, numbers in topics for number in numbers.split(",") if number}


def tasks_in(cell: str, kind: str) -> set[tuple[str, int]]:
    """(Subtopology, partition) of one kind of tasks: `ACTIVE: 0:[0,1]; 1:[0]; TARGET-ACTIVE: 0:[0]`."""
    listed = re.search(rf"(?<![\w-]){kind}:((?:\s*\w+:\s*\[[\d,\s]*\];?)*)", cell)
    found = re.findall(r"(\w+):\s*\[([\d,\s]*)\]", listed[1]) if listed else []
    return {(subtopology, int(one)) for subtopology, numbers in found for one in numbers.split(",") if one.strip()}


def shown(settings: Settings, group: str) -> Row:
    """What `rebalancer lag --group` shows."""
    return read_lag(settings, group_id=group, matches=re.compile(""))


def number(cell: str | None) -> int | None:
    """A figure of the tools; None where they show none."""
    return None if cell in (None, "-") else int(str(cell))
