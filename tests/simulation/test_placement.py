"""Stories in which control acts on states of the placement at once: no invariant breaks, whatever strikes meanwhile."""

from collections import Counter
from random import Random

import pytest

from assignor_core.deciding.reasons import PLACEMENT_REASONS, Verdict
from assignor_core.deciding.step import Decision
from streaming.control.journal import Journal
from tests.simulation.story import Alterations, run_story

pytestmark = pytest.mark.long

SEEDS = range(201, 213)


def altered(seed: int) -> Alterations:
    """Mode apply that waits for nothing, mostly blind to skew, some with a budget of the day, some with topics that
    live on three brokers only.
    """
    chance = Random(f"placement of {seed}")
    sets = {"broker_sets": {"": {"brokers": [1, 2, 3]}}} if seed % 4 == 0 else {}
    return {
        "planner": {**sets},
        "control": {"mode": "apply", "bytes_per_day_max": chance.choice((None, None, 50_000_000, 0))},
        "trigger": {
            "placement_grace_ms": 1, "leaders_grace_ms": 1, "cooldown_ms": 0,
            "enter_ratio": chance.choice((1.3, 3.0, 3.0)),
        },
    }  # fmt: skip


def test_plans_for_the_placement_break_no_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons: Counter[str] = Counter()
    write_decision = Journal.write_decision

    def counting(self: Journal, decision: Decision, *arguments: object, **named: object) -> None:
        if decision.evaluation.verdict is Verdict.PLAN:
            reasons[decision.evaluation.reason] += 1
        write_decision(self, decision, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "write_decision", counting)
    stories = [run_story(seed, altered=altered(seed)) for seed in SEEDS]
    assert [(story.seed, story.broken) for story in stories if story.broken] == []
    assert all(reasons[reason] for reason in PLACEMENT_REASONS), reasons
