"""Settings and topics of a demo."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streaming.config import load_settings
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.prepare import PERSON, add_person, bounded_log_configs, claim, write_settings
from streaming.demo.scenario import PARTITIONS_PER_TOPIC
from streaming.errors import UsageProblem
from streaming.runtime.api_tokens import Role
from streaming.runtime.users import read_users, user_with


@pytest.mark.parametrize("mode", ["propose", "apply"])
def test_a_demo_runs_in_the_mode_asked_for_and_on_loopback(tmp_path: Path, mode: Any) -> None:
    cluster = SimpleNamespace(bootstrap_servers=["127.0.0.1:1"], jmx_endpoints={1: "http://127.0.0.1:2/metrics"})
    settings = load_settings(write_settings(tmp_path, cast("EmbeddedCluster", cluster), mode))
    assert settings.control.mode == mode
    assert settings.control.settle_windows == 2  # the rest of the section is the short story's
    assert settings.serve.host == "127.0.0.1"
    password = add_person(tmp_path, now_ms=0)
    assert settings.serve.users_file is not None
    users = read_users(Path(settings.serve.users_file))
    person = user_with(users, PERSON, password)
    assert person is not None, "who approves on the page signs in with what the demo prints"
    assert person.role is Role.OPERATOR
    assert password not in Path(settings.serve.users_file).read_text()


def test_topics_of_a_kept_demo_are_bounded_but_keep_what_will_be_read_back() -> None:
    small, large = bounded_log_configs(1_000), bounded_log_configs(100_000_000)
    assert int(small["retention.bytes"]) == 32 << 20
    assert int(large["retention.bytes"]) > 100_000_000 / PARTITIONS_PER_TOPIC * 60  # a record takes less than 60 bytes
    assert int(large["segment.bytes"]) < int(small["retention.bytes"])  # whole segments are deleted


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    with pytest.raises(UsageProblem, match="is not empty and no demo made it"):
        claim(tmp_path)
    assert mine.read_text() == "precious"
    home = tmp_path / "home"
    claim(home)
    (home / "old.txt").write_text("of an earlier demo")
    claim(home)
    assert not (home / "old.txt").exists()
