"""Descriptions of settings, help of commands, alerts and metrics keep the rules of the pages: words and length."""

import pytest

from tests.docs.texts import faults_of, texts

TEXTS = texts()


def test_texts_are_plain_english() -> None:
    assert {place: faults_of(text) for place, text in TEXTS.items() if faults_of(text)} == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (" ".join(["w"] * 36) + ".", "36 words: w w"),
        ("The log says why.", "line 1: 'says': write"),
        ("Fine.\nIt tells why.", "line 1: 'tells': write"),
    ],
)
def test_a_text_with_a_fault(text: str, fault: str) -> None:
    assert [one for one in faults_of(text) if one.startswith(fault)]


def test_each_kind_of_text_is_read() -> None:
    expected = {
        "setting kafka.cluster_name",
        "setting control.mode",
        "command rebalancer plan",
        "command rebalancer token create",
        "command rebalancer plan --json",
        "alert RebalancerAbsent summary",
        "metric rebalancer_skew_breached",
    }
    assert expected <= set(TEXTS)
