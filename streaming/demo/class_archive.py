"""The archive of a broker's classes (`streaming.runtime.class_archive`).

`python -m streaming.demo.class_archive`, a step of the set-up, makes it.
"""

import sys
from pathlib import Path

from streaming.runtime import class_archive
from streaming.runtime.jars import jar_paths

TOPIC = "topic"
ANSWER_TIMEOUT_S = 60
STOP_TIMEOUT_S = 120.0


def archive_path(jars_of: str = "broker") -> Path:
    """Returns the path of the class archive of this release of Kafka, whether the archive exists or not: the set-up
    makes the one of "broker". Raises SetUpIncomplete.
    """
    # Java compares the times of the jars, too.
    return class_archive.archive_path("broker", [(path, path.stat().st_mtime_ns) for path in jar_paths(jars_of)])


def start_and_stop_a_broker(java_options: tuple[str, ...], scratch: Path) -> None:
    """A broker that does a little of all that the demo asks of it; its JVM writes the archive as it ends in order.

    Raises BrokerStartFailed.
    """
    from kafka.errors import KafkaError

    from streaming.demo.brokers import BrokerStartFailed, EmbeddedCluster

    with EmbeddedCluster(scratch / "kafka", broker_count=1, java_options=java_options) as cluster:
        try:
            use(cluster.bootstrap_servers)
        except KafkaError as error:
            raise BrokerStartFailed(f"the broker has started and does not answer: {error!r}") from None
        cluster.stop_broker(1, grace_s=STOP_TIMEOUT_S)


def use(servers: list[str]) -> None:
    """Write a record and read it as a group; raises KafkaError."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}})
    admin.wait_for_topics([TOPIC])
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    producer.send(TOPIC, b"record").get(timeout=ANSWER_TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=servers, group_id="group", auto_offset_reset="earliest",
        consumer_timeout_ms=ANSWER_TIMEOUT_S * 1000,
    )  # fmt: skip
    next(iter(consumer), None)
    consumer.close()
    admin.describe_log_dirs(brokers=[1])
    admin.close()


if __name__ == "__main__":
    sys.exit(class_archive.make_if_possible("brokers", archive_path, start_and_stop_a_broker))
