"""docs/trigger.md has the needs and gates of the code. `python -m tests.docs.test_gates` writes them there."""

from collections.abc import Iterator
from pathlib import Path

from assignor_core.deciding.gates import ALL, GATES, NEEDS, Gate
from assignor_core.deciding.reasons import Reason

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trigger.md"
BEGIN, END = "<!-- needs and gates: from assignor_core/deciding/gates.py -->\n", "<!-- end of needs and gates -->\n"


def named(reasons: frozenset[Reason]) -> str:
    """The needs of a gate, the shorter way round."""
    ordered = [kind.reason for kind in NEEDS]
    without = [f"`{reason}`" for reason in ordered if reason not in reasons]
    if not without:
        return "all"
    listed = [f"`{reason}`" for reason in ordered if reason in reasons]
    return f"all but {without[0]}" if len(without) == 1 else ", ".join(listed)


def note(gate: Gate) -> str:
    """What a gate does besides holding."""
    if gate.is_silent:
        return "the decision says nothing of it and considers the next need"
    if gate.only_noted:
        return "mode `propose` makes the plan with a note"
    return "the plan is made and waits" if gate.delays else ""


def section() -> Iterator[str]:
    """Lines between the two marks."""
    yield "\n| need | the cluster has it if |\n|---|---|\n"
    for kind in NEEDS:
        yield f"| `{kind.reason}` | {_sentence(kind.find.__doc__)} |\n"
    for after_plan, title in ((False, "gate"), (True, "gate that judges the finished plan")):
        yield f"\n| {title} | holds if | for needs | reason | |\n|---|---|---|---|---|\n"
        for gate in GATES:
            if gate.after_plan is after_plan:
                reasons = ", ".join(f"`{reason}`" for reason in gate.reasons)
                yield f"| {gate.name} | {gate.holds_if} | {named(gate.needs)} | {reasons} | {note(gate)} |\n"
    yield "\n"


def _sentence(docstring: str | None) -> str:
    first = (docstring or "").partition("\n")[0].rstrip(".")
    return first[0].lower() + first[1:]


def test_the_page_has_the_needs_and_gates_of_the_code() -> None:
    _, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    assert begin
    assert rest.partition(END)[0] == "".join(section()), (
        f"python -m {__spec__.name if __spec__ else 'tests.docs.test_gates'} writes it"
    )


def test_each_gate_has_a_name_of_its_own_needs_and_words() -> None:
    assert len({gate.name for gate in GATES}) == len(GATES)
    assert all(gate.needs and gate.needs <= ALL and gate.reasons and gate.holds_if for gate in GATES)
    assert {kind.reason for kind in NEEDS} == ALL
    plan_made = [gate.after_plan for gate in GATES]
    assert plan_made == sorted(plan_made), "gates before a plan come first"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    PAGE.write_text(head + begin + "".join(section()) + END + rest.partition(END)[2], encoding="utf-8")
