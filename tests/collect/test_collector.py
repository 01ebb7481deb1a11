"""The collector's clients, also where it can't begin, and when its next look begins."""

from pathlib import Path

import pytest

from streaming.collect import run
from streaming.collect.run import pause_s
from streaming.errors import RebalancerError, UsageProblem
from streaming.settings import CollectSettings, KafkaSettings, TopicSettings


class Client:
    """A client that knows only whether it has been closed."""

    def __init__(self, _settings: KafkaSettings) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def no_sender(_settings: KafkaSettings) -> Client:
    raise RebalancerError("no sender")


@pytest.mark.parametrize("has_sender", [True, False])
def test_a_collector_that_can_not_begin_leaves_no_client_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, has_sender: bool
) -> None:
    """With clusters that share a process it is tried again each minute, beside the others."""
    kafka, opened = KafkaSettings(), list[Client]()

    def client(settings: KafkaSettings) -> Client:
        opened.append(Client(settings))
        return opened[-1]

    monkeypatch.setattr(run, "admin_client", client)
    monkeypatch.setattr(run, "BrokerReads", lambda _admin: None)
    monkeypatch.setattr(run, "RecordSender", client if has_sender else no_sender)
    collect = CollectSettings(
        prometheus_url="http://127.0.0.1:1", prometheus_username="u", prometheus_password_file=tmp_path / "absent"
    )
    with pytest.raises(UsageProblem if has_sender else RebalancerError):
        run.Collector(kafka, TopicSettings(), collect, str(tmp_path))
    assert [one.is_closed for one in opened] == [True] * (2 if has_sender else 1)


@pytest.mark.parametrize(
    ("took_s", "interval_s", "expected_s"),
    [(0.0, 10.0, 10.0), (4.0, 10.0, 6.0), (10.0, 10.0, 0.0), (20.0, 10.0, 2.0)],
)
def test_a_look_that_takes_longer_than_the_interval_stretches_it(
    took_s: float, interval_s: float, expected_s: float
) -> None:
    assert pause_s(took_s, interval_s) == expected_s
