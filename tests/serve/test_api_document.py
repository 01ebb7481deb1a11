"""The OpenAPI document is true: Schemathesis draws requests from it, and holds each answer to it.

No answer is an error of the server. Each has a status, type and form that the document lists. Requests that it
forbids are refused, and so are those of nobody where it asks for a token. Acts go to a stand-in.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.runtime.accounts import Role
from streaming.serve.access import sign_in
from streaming.serve.api import events
from streaming.serve.api.acting import ACTS
from streaming.serve.api.endpoints import ENDPOINTS
from streaming.serve.api.openapi import document
from streaming.serve.api.pages import BODY_BYTES_MAX
from streaming.serve.snapshot import Snapshot
from tests.serve.asking import BASE_URL, Acted, app_of
from tests.serve.signed import Browser, Signed
from tests.serve.synthetic import NOW_MS, settings_for
from tests.tables_in_memory import forget, in_memory
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.long  # Schemathesis compiles each operation's schemas, however few examples are tried

HOST_OF_ITS_OWN = "testserver"
"""Schemathesis repeats some requests without credentials, to this host."""
OPERATIONS = [(path, method) for path, methods in document(ENDPOINTS, ACTS)["paths"].items() for method in methods]


class Asked:
    """The application, the document as Schemathesis reads it, and headers of those who ask."""

    def __init__(self, signed: Signed, snapshot: Snapshot) -> None:
        app = app_of(snapshot, signed.settings, now_ms=NOW_MS, actions=Acted())
        self.schema = pytest.importorskip(
            "schemathesis", reason="schemathesis is not installed: deploy/extras/api-tests.lock"
        ).openapi.from_dict(document(ENDPOINTS, ACTS))
        self.schema.app = signed.app = app
        browser = Browser(signed)
        of_browser = {"Cookie": browser.cookie, "Origin": BASE_URL, "X-CSRF-Token": browser.csrf_token}
        self.credentials: dict[str, dict[str, str]] = {
            "nobody": {},
            "no token": {"Authorization": "Bearer x"},
            "session": of_browser,
            "session without its page": {"Cookie": browser.cookie},
            **{role.value: {"Authorization": f"Bearer {signed.tokens[role]}"} for role in Role},
        }


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """So many wrong tokens are sent that 429 would hide how each is refused. Streams end after what is now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sign_in, "WRONG_MAX", 100_000)
        patch.setattr(events, "STREAM_MAX_S", 0.0)
        yield


def asked_of(folder: Path, root: str, snapshot: Snapshot) -> Asked:
    return Asked(Signed(folder, root, allowed_hosts=[HOST_OF_ITS_OWN]), snapshot)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory, skewed_tables: str, skewed_snapshot: Snapshot) -> Asked:
    """Over Delta, which reads what it is given as SQL."""
    folder = tmp_path_factory.mktemp("readers")
    root = settings_for(folder).storage.tables
    shutil.copytree(skewed_tables, root)
    return asked_of(folder, root, skewed_snapshot)


@pytest.fixture(scope="module")
def actors(tmp_path_factory: pytest.TempPathFactory, skewed_snapshot: Snapshot) -> Iterator[Asked]:
    """Over tables in memory, as each act writes two rows."""
    root = in_memory()
    yield asked_of(tmp_path_factory.mktemp("actors"), root, skewed_snapshot)
    forget(root)


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_each_answer_is_as_the_document_has_it(
    readers: Asked, actors: Asked, path: str, method: str, data: st.DataObject
) -> None:
    asked = readers if method == "get" else actors
    operation = asked.schema[path][method.upper()]
    case = data.draw(drawn(operation))
    who = data.draw(st.sampled_from(sorted(asked.credentials)))
    response = case.call(base_url=BASE_URL, headers=asked.credentials[who], timeout=DEADLINE_S)
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    # A schema can't say that `from` is before `to`, or that a cursor is one that this list has given.
    case.validate_response(response, excluded_checks=[positive_data_acceptance])
    assert len(response.content) <= BODY_BYTES_MAX


def drawn(operation: Any) -> st.SearchStrategy[Any]:
    """Requests that the document allows, and such that it forbids."""
    from schemathesis import GenerationMode

    takes_nothing = not list(operation.iter_parameters()) and not operation.body
    modes = [GenerationMode.POSITIVE] if takes_nothing else list(GenerationMode)
    return st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])
