"""Produce and InitProducerId: records are counted, and the values of some topics kept. Nothing can be fetched."""

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.record.memory_records import MemoryRecords

from tests.fleet.api import NOT_LEADER, OK, UNKNOWN_PARTITION, Api
from tests.fleet.fleet import Fleet

LENGTH = struct.Struct(">qi")
"""How a batch begins: base offset, bytes that follow."""
RECORDS_AT = 57
"""Where the number of its records stands in a batch of format 2."""
HEAD_BYTES = 61
"""Of such a batch; then come its records, compressed if the lowest bits of this byte name a codec."""
CODEC_AT, CODEC_MASK, LZ4 = 22, 0b111, 3
PRODUCER_ID = 1


def _produced(fleet: Fleet, broker: int, request: Any) -> Any:
    return _response(request, lambda topic, row: _appended(fleet, broker, topic, row), fleet)


def _refused(fleet: Fleet, _broker: int, request: Any) -> Any:
    return _response(request, lambda _topic, _row: (NOT_LEADER, -1), fleet)


def _response(request: Any, append: Any, fleet: Fleet) -> Any:
    topic_response = ProduceResponse.TopicProduceResponse
    partition_response = topic_response.PartitionProduceResponse
    responses = []
    for topic in request.topic_data:
        name = topic.name or fleet.topic_of(topic.topic_id)
        rows = []
        for row in topic.partition_data:
            error_code, offset = append(name, row)
            rows.append(partition_response(index=row.index, error_code=error_code, base_offset=offset))
        responses.append(topic_response(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
    return ProduceResponse(responses=responses, throttle_time_ms=0)


def _appended(fleet: Fleet, broker: int, topic: str | None, row: Any) -> tuple[int, int]:
    """(Error code, log end offset before). The log grows by the bytes as they came, however many records that are."""
    partition = fleet.contents.partition((topic, row.index)) if topic else None
    if topic is None or partition is None:
        return UNKNOWN_PARTITION, -1
    if partition.leader != broker:
        return NOT_LEADER, -1
    key = (topic, row.index)
    offset = fleet.offsets(topic, partition)[1]
    records = bytes(row.records or b"")
    fleet.produced[key] += sum(_record_counts(records))
    if topic in fleet.kept:
        fleet.kept[topic].extend(_values(records))
    fleet.append(partition, len(records))
    return OK, offset


def _record_counts(records: bytes) -> Iterator[int]:
    """Number of records of each batch, read from its head: nothing is unpacked."""
    position = 0
    while position < len(records):
        _, length = LENGTH.unpack_from(records, position)
        yield struct.unpack_from(">i", records, position + RECORDS_AT)[0]
        position += LENGTH.size + length


def _values(records: bytes) -> Iterator[bytes]:
    batches = MemoryRecords(_unpacked(records))
    while batches.has_next():
        yield from (record.value for record in batches.next_batch())


def _unpacked(records: bytes) -> bytes:
    """The same batches without LZ4, which kafka-python reads with a package of its own only."""
    made, position = bytearray(), 0
    while position < len(records):
        end = position + LENGTH.size + LENGTH.unpack_from(records, position)[1]
        batch = bytearray(records[position:end])
        if batch[CODEC_AT] & CODEC_MASK == LZ4:
            body = pyarrow.input_stream(pyarrow.py_buffer(batch[HEAD_BYTES:]), compression="lz4").read()
            batch[HEAD_BYTES:] = body
            batch[CODEC_AT] &= ~CODEC_MASK
            LENGTH.pack_into(batch, 0, 0, len(batch) - LENGTH.size)
        made += batch
        position = end
    return bytes(made)


def _not_fetched(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    """Listed, since librdkafka writes today's format only to brokers that know Fetch."""
    raise LookupError("nothing can be fetched")


def _producer_id(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=OK, producer_id=PRODUCER_ID, producer_epoch=0)


APIS = (
    Api(ProduceRequest, (3, 13), _produced, _refused),
    Api(FetchRequest, (4, 18), _not_fetched),
    Api(InitProducerIdRequest, (0, 5), _producer_id),
)
