"""The page asks for what the API has: each path, parameter and member that its scripts name stands in the document."""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import pytest

from streaming.serve.api.acting import ACTS
from streaming.serve.api.endpoints import ENDPOINTS
from streaming.serve.api.openapi import document
from streaming.serve.web import SCRIPTS

SOURCES = {path: files("streaming.serve").joinpath(file).read_text() for path, file in SCRIPTS.items()}
PATHS: Mapping[str, Any] = document(ENDPOINTS, ACTS)["paths"]


def members(path: str) -> set[str]:
    schema = PATHS[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    if "items" in schema["properties"]:
        schema = schema["properties"]["items"]["items"]
    return set(schema["properties"])


def test_each_path_that_scripts_ask_is_in_the_document() -> None:
    asked = {
        re.sub(r"\$\{.*?\}", "{}", path)
        for text in SOURCES.values()
        for path in re.findall(r"[\"`](api/.*?)[\"`]", text)
    }
    known = {re.sub(r"\{\w+\}", "{}", path).lstrip("/") for path in PATHS}
    assert asked - {"api/v1/plans/{}"} <= known
    assert {"api/v1/plans/{}/approve", "api/v1/executions/{}/abort", "api/v1/session"} <= asked
    assert "${id}/movements?" in SOURCES["plan.js"]


def test_each_member_of_a_plan_that_is_shown_is_in_the_document() -> None:
    named = set(re.findall(r"\bplan\.(\w+)", SOURCES["plan.js"]))
    assert {"waits", "brokers", "diagnosis", "cheaper", "bytes_to_move"} <= named
    assert named <= members("/api/v1/plans/{plan_id}")
    shown = {
        "topic",
        "partition",
        "kind",
        "old_replicas",
        "new_replicas",
        "bytes_to_move",
        "reason",
        "old_log_dir",
        "new_log_dir",
    }
    of_rows = set(re.findall(r"\brow\.(\w+)", SOURCES["plan.js"]))
    assert shown <= of_rows
    assert shown <= members("/api/v1/plans/{plan_id}/movements")


def test_each_parameter_of_movements_that_is_sent_is_in_the_document() -> None:
    sent = set(re.findall(r"query\.set\(\"(\w+)\"", SOURCES["plan.js"])) | {"limit", "order"}
    known = {one["name"]: one["schema"] for one in PATHS["/api/v1/plans/{plan_id}/movements"]["get"]["parameters"]}
    assert sent == {"limit", "order", "topic", "cursor"}
    assert sent <= set(known)
    page = files("streaming.serve").joinpath("page.html").read_text()
    assert set(re.findall(r"<option value=\"(\w+)\"", page)) == set(known["order"]["enum"])


@pytest.mark.parametrize("path", SOURCES)
def test_a_script_is_small_and_keeps_to_itself(path: str) -> None:
    text = SOURCES[path]
    assert text.startswith('"use strict";\n')
    assert len(text.splitlines()) <= 250
    assert re.findall(r"^(?:const|let|var|function) (\w+)", text, re.MULTILINE) in ([], ["actPlace"])
    assert not re.search(r"https?://", text)


def test_each_field_and_region_has_a_name_for_those_who_do_not_see_it() -> None:
    page = files("streaming.serve").joinpath("page.html").read_text()
    for tag in re.findall(r"<(?:input|select)[^>]*>", page):
        own = re.search(r' id="([^"]+)"', tag)
        assert "aria-label=" in tag or (own and f'for="{own[1]}"' in page), tag
    assert 'aria-labelledby="plan-look-title"' in page
    assert 'role="alert"' in page
