"""The page asks for what the API has: each path, parameter and member that its scripts name stands in the document."""

import hashlib
import posixpath
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import pytest

from assignor_core.resources import Resource
from streaming.serve.api.acting import ACTS
from streaming.serve.api.endpoints import ENDPOINTS
from streaming.serve.api.openapi import document
from streaming.serve.web import PAGE as PAGE_OF_ONE
from streaming.serve.web import PAGE_OF_ALL, page_files

TEMPLATES = "lit-html/"
"""The library for templates, as npm has it."""
OWN = {name: text for name, text in page_files().items() if not name.startswith(TEMPLATES)}
SOURCES = {name: text for name, text in OWN.items() if name.endswith(".js")}
LINE_MAX, LINES_MAX = 120, 600
PAGE = page_files()[PAGE_OF_ONE]
PATHS: Mapping[str, Any] = document(ENDPOINTS, ACTS)["paths"]


def members(path: str) -> set[str]:
    schema = PATHS[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    if "items" in schema["properties"]:
        schema = schema["properties"]["items"]["items"]
    return set(schema["properties"])


def test_the_page_lists_no_resources() -> None:
    """Names, words and units of resources are those of /api/status."""
    load = "|".join(resource.value for resource in Resource if not resource.is_count)
    literal = re.compile(rf"[\"'`.>](?:{load})(?:[\"'`<]|_max_over_mean|$)", re.MULTILINE)
    assert {name: literal.findall(text) for name, text in OWN.items() if literal.search(text)} == {}
    assert literal.search('let shown = "bytes_in";')
    assert literal.search("row.bytes_in_max_over_mean_before")


def test_each_path_that_scripts_ask_is_in_the_document() -> None:
    asked = {
        re.sub(r"\$\{.*?\}", "{}", path)
        for text in SOURCES.values()
        for path in re.findall(r"[\"`](api/.*?)[\"`]", text)
    }
    known = {re.sub(r"\{\w+\}", "{}", path).lstrip("/") for path in PATHS}
    assert asked - {"api/v1/plans/{}", "api/v1/{}?{}", "api/status"} <= known
    assert {"api/v1/plans/{}/approve", "api/v1/executions/{}/abort", "api/v1/session"} <= asked
    assert "${id}/movements?" in SOURCES["plan.js"]
    read = {f"/api/v1/{path}" for text in SOURCES.values() for path in re.findall(r"views\.read\(\s*\"(.*?)\"", text)}
    assert {"/api/v1/groups/partitions", "/api/v1/groups/rebalances", "/api/v1/decisions", "/api/v1/audit"} <= read
    assert read <= set(PATHS)


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
    scripts = "".join(SOURCES[name] for name in ("plan.js", "executions.js", "elements.js"))
    assert shown <= set(re.findall(r"\b(?:row|move)\.(\w+)", scripts))
    assert shown <= members("/api/v1/plans/{plan_id}/movements")


@pytest.mark.parametrize(
    ("script", "variable", "path"),
    [
        ("decisions.js", "row", "decisions"),
        ("decision.js", "seen", "decisions/seen"),
        ("audit.js", "row", "audit"),
        ("clusters.js", "row", "clusters"),
        ("groups.js", "parts", "groups/partitions"),
        ("executions.js", "row", "executions/{execution_id}"),
        ("executions.js", "move", "executions/{execution_id}/movements"),
    ],
)
def test_each_member_that_a_page_shows_is_in_the_document(script: str, variable: str, path: str) -> None:
    named = set(re.findall(rf"\b{variable}\.(\w+)", SOURCES[script]))
    schema = PATHS[f"/api/v1/{path}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert len(named) > 5
    assert named <= members(f"/api/v1/{path}") | set(schema["properties"])


def test_each_figure_of_a_wave_or_broker_that_is_shown_is_in_the_document() -> None:
    answer = PATHS["/api/v1/executions/{execution_id}"]["get"]["responses"]["200"]
    shape = answer["content"]["application/json"]["schema"]["properties"]
    named = set(re.findall(r"\bpart\.(\w+)", SOURCES["executions.js"]))
    assert "bytes_made" in named
    for name in ("waves", "receivers"):
        assert named <= set(shape[name]["items"]["properties"])


def test_each_list_of_the_document_says_what_it_is_of() -> None:
    def bare(shape: Any, where: str) -> list[str]:
        if isinstance(shape, list):
            return [found for one in shape for found in bare(one, where)]
        if not isinstance(shape, dict):
            return []
        own = [where] if "array" in shape.get("type", ()) and "items" not in shape else []
        return own + [found for name, one in shape.items() for found in bare(one, f"{where}/{name}")]

    assert bare(PATHS, "") == []


def test_each_parameter_of_movements_that_is_sent_is_in_the_document() -> None:
    sent = set(re.findall(r"query\.set\(\"(\w+)\"", SOURCES["plan.js"])) | {"limit", "order"}
    known = {one["name"]: one["schema"] for one in PATHS["/api/v1/plans/{plan_id}/movements"]["get"]["parameters"]}
    assert sent == {"limit", "order", "topic", "cursor"}
    assert sent <= set(known)
    assert set(re.findall(r"<option value=\"(\w+)\"", PAGE)) == set(known["order"]["enum"])


@pytest.mark.parametrize("path", SOURCES)
def test_a_module_is_small_and_imports_what_it_uses_from_modules_that_have_it(path: str) -> None:
    text = SOURCES[path]
    assert text.startswith("// ")
    assert len(text.splitlines()) <= LINES_MAX
    assert "://" not in text
    imports = r'^import \{([^}]*)\} from "\./(.*?)";$'
    code = re.sub(rf"{imports}|//.*", "", text, flags=re.MULTILINE)
    for names, module in re.findall(imports, text, re.MULTILINE):
        for name in filter(None, re.split(r"[,\s]+", names)):
            own = rf"^export (?:async )?(?:const|let|function) {name}\b"
            theirs = rf"export\{{.*\b{name}\b.*\}}"
            assert re.search(theirs if module.startswith(TEMPLATES) else own, page_files()[module], re.MULTILINE), name
            assert re.search(rf"(?:(?<![\w.\"$])|\.\.\.){name}(?![\w\":])", code), f"{name} is imported and not used"


def test_lines_of_the_page_are_short() -> None:
    """`make lint` checks the layout of scripts and styles; templates in scripts, and HTML, are laid out by hand."""
    lines = [(name, line) for name, text in OWN.items() for line in text.splitlines()]
    assert [(name, line) for name, line in lines if len(line) > LINE_MAX or "\t" in line or line != line.rstrip()] == []


def test_the_library_is_as_it_was_fetched_and_has_its_licence() -> None:
    folder = files("streaming.serve").joinpath("page", TEMPLATES)
    lines = [line.split() for line in folder.joinpath("lit-html.sha256").read_text().splitlines()]
    listed = {name: checksum for checksum, name in lines}
    kept = {name.removeprefix(TEMPLATES): text for name, text in page_files().items() if name not in OWN}
    assert {name: hashlib.sha256(text.encode()).hexdigest() for name, text in kept.items()} == listed
    assert folder.joinpath("LICENSE").read_text().startswith("BSD 3-Clause License")


def test_each_module_belongs_to_a_page_which_names_all_of_its_own() -> None:
    """A browser asks for the modules that a page names at once, and learns of no further one when it reads them."""
    named = {
        page: re.findall(r'rel="modulepreload" href="(.*?)"', page_files()[page]) for page in (PAGE_OF_ONE, PAGE_OF_ALL)
    }
    for page, modules in named.items():
        assert set(re.findall(r'<script type="module" src="(.*?)"', page_files()[page])) <= set(modules)
        for module in modules:
            imported = re.findall(r'from ?"(\..*?)"', page_files()[module])
            assert {posixpath.normpath(posixpath.join(posixpath.dirname(module), path)) for path in imported} <= set(
                modules
            )
    assert {name for modules in named.values() for name in modules} == {
        name for name in page_files() if name.endswith(".js")
    }


def test_each_field_and_region_has_a_name_for_those_who_do_not_see_it() -> None:
    for tag in re.findall(r"<(?:input|select)[^>]*>", PAGE):
        own = re.search(r' id="([^"]+)"', tag)
        assert "aria-label=" in tag or (own and f'for="{own[1]}"' in PAGE), tag
    assert 'aria-labelledby="plan-look-title"' in PAGE
    assert 'role="alert"' in PAGE
