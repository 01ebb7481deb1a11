"""Our messages of the newer group protocols against Kafka: the specs in its jar, and the bytes that Java writes."""

import json
import random
import re
import subprocess
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.schemas.fields.base import BaseField

from streaming.cluster import group_messages
from streaming.runtime.jars import jar_paths
from tests.java_programs import program

pytestmark = pytest.mark.java

SOURCE = Path(__file__).with_name("GroupMessages.java")
NAMES = sorted(name for name in vars(group_messages) if re.search("(Request|Response)$", name))
CASES = 30
WIRE = ("name", "type", "versions", "nullableVersions", "tag", "taggedVersions", "default", "fields")
WORDS = ("", "orders", "größe", "x" * 200)


def in_jar() -> dict[str, dict[str, Any]]:
    """Specs of our messages as the brokers' client jar has them."""
    (jar,) = [path for path in jar_paths("broker") if re.fullmatch(r"kafka-clients-[\d.]+\.jar", path.name)]
    with zipfile.ZipFile(jar) as packed:
        texts = {name: packed.read(f"common/message/{name}.json").decode() for name in NAMES}
    return {name: json.loads(re.sub(r"(?m)^\s*//.*$", "", text)) for name, text in texts.items()}


def on_the_wire(field: Mapping[str, Any], newest: int) -> dict[str, Any]:
    """What of a field or a structure decides about bytes of the versions up to `newest`."""
    fields = {"fields": on_the_wire_of(field["fields"], newest)} if "fields" in field else {}
    return {key: field[key] for key in WIRE if key in field} | fields


def on_the_wire_of(fields: Sequence[Mapping[str, Any]], newest: int) -> list[dict[str, Any]]:
    """The fields of a message or of a structure that are in a version up to `newest`."""
    return [on_the_wire(row, newest) for row in fields if int(re.split("[-+]", row["versions"])[0]) <= newest]


def newest_of(spec: Mapping[str, Any]) -> int:
    """The newest version of a message."""
    return int(spec["validVersions"].split("-")[-1])


def test_there_are_the_four_requests_and_their_responses() -> None:
    assert len(NAMES) == 8


@pytest.mark.parametrize("name", NAMES)
def test_the_fields_are_those_of_kafkas_spec(name: str) -> None:
    """Kafka's spec may have newer versions than ours."""
    theirs = in_jar()[name]
    ours = json.loads((Path(group_messages.__file__).parent / f"{name}.json").read_text(encoding="utf-8"))
    for key in ("apiKey", "type", "name", "flexibleVersions"):
        assert ours[key] == theirs[key]
    newest = newest_of(ours)
    assert newest <= newest_of(theirs)
    for key in ("fields", "commonStructs"):
        assert on_the_wire_of(ours.get(key, []), newest) == on_the_wire_of(theirs.get(key, []), newest)


def some_value(field: BaseField, version: int, draw: random.Random) -> Any:
    """A value that the field may have in this version."""
    nullable = field._nullable_versions
    if nullable and nullable[0] <= version <= nullable[1] and draw.random() < 0.3:
        return None
    kind = field._json["type"]
    if kind.startswith("[]"):
        count = draw.randrange(3)
        if field.is_struct_array():
            return [some_struct(field, version, draw) for _ in range(count)]
        return [draw.choice(WORDS) if kind == "[]string" else draw.randrange(2**31) for _ in range(count)]
    if field.is_struct():
        return some_struct(field, version, draw)
    bits = re.fullmatch(r"u?int(\d+)", kind)
    if bits:
        return draw.randrange(2 ** (int(bits[1]) - 1))
    return {"string": draw.choice(WORDS), "bool": draw.random() < 0.5, "uuid": uuid.UUID(int=draw.getrandbits(128))}[
        kind
    ]


def some_struct(field: Any, version: int, draw: random.Random) -> Any:
    fields = [row for row in field.fields.values() if row.for_version_q(version)]
    return field.data_class(version=version, **{row.name: some_value(row, version, draw) for row in fields})


def some_messages() -> Iterator[tuple[str, int, Any]]:
    draw = random.Random(848)
    for name in NAMES:
        message = getattr(group_messages, name)
        for version in range(message.valid_versions[0], message.max_version + 1):
            for _ in range(CASES):
                fields = [row for row in message._struct.fields.values() if row.for_version_q(version)]
                values = {row.name: some_value(row, version, draw) for row in fields}
                yield name, version, message(version=version, **values)


def same_words(ours: Any) -> Any:
    """As Java's converter names and shows it; ids of topics are shown in another way there."""
    if isinstance(ours, dict):
        return {
            re.sub("_(.)", lambda one: one[1].upper(), key): same_words(row)
            for key, row in ours.items()
            if key != "topic_id"
        }
    return [same_words(row) for row in ours] if isinstance(ours, list) else ours


def without_ids(theirs: Any) -> Any:
    if isinstance(theirs, dict):
        return {key: without_ids(row) for key, row in theirs.items() if key != "topicId"}
    return [without_ids(row) for row in theirs] if isinstance(theirs, list) else theirs


def test_java_reads_and_writes_the_same_bytes() -> None:
    messages = list(some_messages())
    lines = "".join(
        f"{name} {version} {bytes(message.encode(version=version)).hex()}\n" for name, version, message in messages
    )
    done = subprocess.run(program(SOURCE), input=lines, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    answers = [line for line in done.stdout.splitlines() if re.match(r"[0-9a-f]+ ", line)]
    assert len(answers) == len(messages) >= 8 * CASES
    for answer, (name, version, message) in zip(answers, messages, strict=True):
        written, shown = answer.split(" ", 1)
        encoded = bytes(message.encode(version=version))
        assert written == encoded.hex(), (name, version, message)
        assert without_ids(json.loads(shown)) == same_words(message.to_dict()), (name, version, message)
        assert type(message).decode(encoded, version=version).to_dict() == message.to_dict()
