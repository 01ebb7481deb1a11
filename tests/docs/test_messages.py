"""What commands print and errors state keeps the words of the pages, in sentences of 30 words at most."""

import pytest

from tests.docs.messages import faults_of, files, messages
from tests.docs.prose import ROOT


def test_messages_are_plain_english() -> None:
    faulty = {
        f"{file.relative_to(ROOT)}:{line}: {text}": faults_of(text)
        for file in files()
        for line, text in messages(file.read_text(encoding="utf-8"))
        if faults_of(text)
    }
    assert faulty == {}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('raise E(f"{name} " "tells why")', "line 1: 'tells': write"),
        ("click.echo('a' + ' says b')", "line 1: 'says': write"),
        (f"raise E('{' w' * 31}')", "31 words"),
    ],
)
def test_a_message_with_a_fault(source: str, fault: str) -> None:
    assert [one for _, text in messages(source) for one in faults_of(text) if one.startswith(fault)]


def test_what_nobody_reads_is_left_out() -> None:
    assert list(messages('"""It says."""\nlog.info("says")\nx = "tells"')) == []
