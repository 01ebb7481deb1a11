"""What the core exports is there for who imports it, though nothing of it is imported before."""

import pytest

import assignor_core


def test_every_name_that_is_exported_is_there() -> None:
    exported = {name: getattr(assignor_core, name) for name in assignor_core.__all__}
    assert exported["STRATEGIES"]
    assert all(value.__name__ == name for name, value in exported.items() if name != "STRATEGIES")


def test_a_name_that_is_not_exported_is_missed_by_name() -> None:
    with pytest.raises(AttributeError, match="'assignor_core' has no attribute 'nothing'"):
        assignor_core.nothing  # type: ignore[attr-defined]  # noqa: B018 - to ask for it is what fails
