"""What the product refuses of a single setting, the chart's schema refuses too; what one takes, the other takes."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from streaming.settings import Settings
from tests.deploy.objects import CHART, Json

SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
SECTIONS = {
    name: SCHEMA["definitions"][part["$ref"].rpartition("/")[2]]["properties"]
    for name, part in SCHEMA["definitions"]["settings"]["properties"].items()
}
BEYOND_A_SCHEMA = {
    "is no regular expression": r"",
    "has no group": r"",
    "must be like http://host:port/path": r"^[hH][tT][tT][pP][sS]?://[^/?# ]",
    "must begin with https://, unless it is on loopback": r"^[hH][tT][tT][pP]://",
    "must have no user, query or fragment": r"[@?#]",
    "is no address or network": r"[.:]",
    "begins and ends at the same time": r"^.*(\d\d:\d\d)-(\1)$",
    "set either url or url_file": r"",
}
"""What the product says of a value that no schema can judge, and how a text must look to get so far."""
TEXTS = (
    "", "a", "~", "~/x", "(", "a:1", "a:0", "a:65535", "a:65536", ":1", "1/2", "bytes_in", "leaders", "apply", "DEBUG",
    "http://a", "ftp://a", "http://", "127.0.0.1", "10.0.0.0/8", "300.1.1.1", "Mon-Fri 01:00-05:00", "25:00-26:00",
    "00:00-24:00", "24:00-01:00", "Xxx 01:00-02:00", "01:00-01:00", "2g", "2x", "-Xss4m", "-Xmx1g", "x -Xss4m",
    'a="b"', "a=b", "crowded_racks", "skewed", "viewer", "cruise-control",
)  # fmt: skip


def limits(part: Any) -> Iterator[float]:
    """Each limit within a part of a schema."""
    if isinstance(part, dict):
        names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxItems")
        yield from (part[name] for name in names if name in part)
        for inner in part.values():
            yield from limits(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from limits(inner)


def values_near(properties: Json) -> st.SearchStrategy[Any]:
    """Values of every JSON type; numbers at, below and above each limit among these settings."""
    near = sorted({limit + step for limit in limits(properties) for step in (-1, -0.01, 0, 0.01, 1)})
    whole = sorted({int(number) for number in near} | {0, 1, 60_000, 3_599_999})
    leaf = (
        st.none()
        | st.booleans()
        | st.sampled_from(whole)
        | st.sampled_from(near or [0.5])
        | st.integers(-2, 2**62)
        | st.floats(-1e15, 1e15)
        | st.sampled_from(TEXTS)
        | st.text(max_size=4)
    )
    several = st.lists(leaf, max_size=2)
    return leaf | several | st.dictionaries(st.sampled_from(["1", "a", "(", "viewer"]), leaf | several, max_size=2)


def refusal(content: Json) -> str | None:
    """Why the product refuses a single setting; None if it takes it, or only wants other settings beside it."""
    try:
        Settings.model_validate(content)
    except ValidationError as error:
        rows = [row for row in error.errors() if len(row["loc"]) > 1]
        for row in rows:
            shown = row["input"] if isinstance(row["input"], list) else [row["input"]]
            fitting = [like for message, like in BEYOND_A_SCHEMA.items() if message in row["msg"]]
            if not fitting or not any(re.search(like, str(text)) for like in fitting for text in shown):
                return row["msg"]
    return None


def is_taken_as_it_is(content: Json) -> bool:
    """Whether the product takes a setting without a conversion of its type, such as of '5' to 5."""
    try:
        Settings.model_validate_json(json.dumps(content), strict=True)
    except ValidationError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("section", SECTIONS)
def test_product_and_chart_judge_each_setting_alike(section: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="`make setup` installs it, with kubernetes-validate")
    judge = jsonschema.Draft7Validator({"definitions": SCHEMA["definitions"], "$ref": "#/definitions/settings"})

    @settings(max_examples=60 * len(SECTIONS[section]), deadline=None)
    @given(st.sampled_from(sorted(SECTIONS[section])), values_near(SECTIONS[section]))
    def judged_alike(key: str, value: Any) -> None:
        content = {section: {key: value}}
        faults = [fault.message for fault in judge.iter_errors(content)]
        assert faults or refusal(content) is None, f"only the product refuses {content}: {refusal(content)}"
        assert not faults or not is_taken_as_it_is(content), f"only the chart refuses {content}: {faults}"

    judged_alike()


@pytest.mark.parametrize(
    "content",
    [
        {"trigger": {"resources": ["leaders"]}}, {"trigger": {"placement_reasons": ["skewed"]}},
        {"trigger": {"windows_over": 1001}}, {"pipeline": {"window_ms": 7}}, {"kafka": {"bootstrap_servers": ["a"]}},
        {"control": {"maintenance_windows": ["25:00-26:00"]}}, {"storage": {"tables": "~/tables"}},
        {"planner": {"capacities": {"1": {"disk_bytes": 0}}}}, {"planner": {"leader_racks": {"a": []}}},
        {"planner": {"failover_headroom": "zone"}},
    ],
)  # fmt: skip
def test_both_refuse(content: Json) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="`make setup` installs it, with kubernetes-validate")
    judge = jsonschema.Draft7Validator({"definitions": SCHEMA["definitions"], "$ref": "#/definitions/settings"})
    assert list(judge.iter_errors(content))
    assert refusal(content) is not None
