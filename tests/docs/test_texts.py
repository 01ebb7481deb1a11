"""Descriptions of settings, help of commands, alerts and metrics keep the rules of the pages: words and length."""

from collections.abc import Mapping

import pytest

from tests.docs.texts import faults_of, texts


@pytest.fixture(scope="module")
def all_texts() -> Mapping[str, str]:
    return texts()


def test_texts_are_plain_english(all_texts: Mapping[str, str]) -> None:
    assert {place: faults_of(text) for place, text in all_texts.items() if faults_of(text)} == {}


def test_each_setting_is_described_by_whole_sentences(all_texts: Mapping[str, str]) -> None:
    """Whoever reads a setting alone, in a schema or in a file, knows what it does."""
    settings = {place: text for place, text in all_texts.items() if place.startswith("setting ")}
    fragments = ("The same", "Those ", "Of ", "As ", "Its ", "So long", "Better ", "With ")
    assert {place for place, text in settings.items() if not text.endswith(".") or text.startswith(fragments)} == set()


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


def test_each_kind_of_text_is_read(all_texts: Mapping[str, str]) -> None:
    expected = {
        "setting kafka.cluster_name",
        "setting control.mode",
        "command rebalancer plan",
        "command rebalancer token create",
        "command rebalancer plan --json",
        "alert RebalancerAbsent summary",
        "metric rebalancer_skew_breached",
    }
    assert expected <= set(all_texts)
