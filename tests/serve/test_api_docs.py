"""Each curl of docs/api.md is answered as the page has it."""

import re
import shlex
import shutil

import pytest
from starlette.applications import Starlette

from streaming.runtime.accounts import Role, new_token, new_user, write_tokens, write_users
from streaming.runtime.jars import PROJECT_ROOT
from streaming.serve.access.signing import PATH
from streaming.serve.api import events
from streaming.serve.api.acting import ACTS
from streaming.serve.api.endpoints import ENDPOINTS
from streaming.serve.snapshot import Snapshot
from tests.serve.asking import BASE_URL, Acted, app_of, ask
from tests.serve.synthetic import NOW_MS, settings_for

PAGE = (PROJECT_ROOT / "docs/api.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.startswith("    curl ")]
URLS = {shlex.split(line)[-1].removeprefix(BASE_URL).partition("?")[0] for line in COMMANDS}
IDS = {"plan_id": "a" * 64, "execution_id": "e-1", "broker": "3"}


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, skewed_tables: str, skewed_snapshot: Snapshot
) -> tuple[Starlette, str]:
    """The application and a token of an operator; acts go to a stand-in, so that examples leave no trace."""
    folder = tmp_path_factory.mktemp("documented")
    shutil.copytree(skewed_tables, settings_for(folder).storage.tables)
    file = folder / "tokens.json"
    text, kept = new_token("me", Role.OPERATOR, now_ms=NOW_MS, expires_ms=NOW_MS + 1_000)
    write_tokens(file, [kept])
    users = folder / "users.json"
    write_users(users, [new_user("ada", Role.OPERATOR, "three-words-that-rhyme", now_ms=NOW_MS)])
    own = settings_for(folder, serve={"tokens_file": str(file), "users_file": str(users)})
    return app_of(skewed_snapshot, own, now_ms=NOW_MS, actions=Acted()), text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_example_is_answered(served: tuple[Starlette, str], command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAM_MAX_S", 0.0)
    app, token = served
    *options, url = shlex.split(command.replace("$TOKEN", token))[1:]
    given = list(zip(options[::2], options[1::2], strict=True))
    headers = dict(value.split(": ", 1) for name, value in given if name == "--header")
    content = next((value for name, value in given if name == "--data"), None)
    method = next((value for name, value in given if name == "--request"), "GET")
    answer = ask(app, method, url, headers=headers, content=content)
    assert answer.status_code == 200, answer.text
    if url.endswith(events.PATH):
        assert answer.text.count("event: ") == 3
        return
    assert answer.json().get("items") != [] or "/movements" in url or url.endswith("/audit")
    assert "state" in answer.json() or method == "GET" or url.endswith("/session")


def test_the_page_has_an_example_of_each_path() -> None:
    assert {endpoint.path.format(**IDS) for endpoint in (*ENDPOINTS, *ACTS)} | {PATH, events.PATH} <= URLS


def test_the_page_names_every_state_of_an_act() -> None:
    source = (PROJECT_ROOT / "streaming/commands/acting.py").read_text()
    states = set(re.findall(r'ActOutcome\(\s*"(\w+)"', source)) | {"declined", "failed"}
    assert {state for state in states if f"`{state}`" not in PAGE} == set()
