"""Sentences that are drawn by seed are whole, of every kind of text, and can be drawn again."""

import pytest

from tests.docs.draw import EACH, WORDS_MIN, Sentences, all_sentences, draw
from tests.docs.prose import words


@pytest.fixture(scope="module")
def found() -> Sentences:
    return all_sentences()


def test_a_seed_draws_its_sentences_again(found: Sentences) -> None:
    assert draw(found, 1) == draw(found, 1) != draw(found, 2)


def test_each_kind_of_text_is_drawn(found: Sentences) -> None:
    kinds = {one: kind for kind, of_kind in found.items() for one in of_kind}
    drawn = [kinds[one] for one in draw(found, 1)]
    assert {kind: drawn.count(kind) for kind in found} == dict.fromkeys(("page", "docstring", "text", "message"), EACH)


def test_no_sentence_is_drawn_twice(found: Sentences) -> None:
    for of_kind in found.values():
        assert len({sentence for _, sentence in of_kind}) == len(of_kind)


def test_sentences_are_whole(found: Sentences) -> None:
    every = [one for of_kind in found.values() for _, one in of_kind]
    assert min(words(one) for one in every) >= WORDS_MIN
    assert not [one for one in every if "\n" in one or ">>>" in one]
    assert [one for one in every if "'rebalancer check'" in one], "code is shown as it is"
