"""Licences of the packages that the product runs with, as a table: `python deploy/release/licences.py`.

They are what the installed packages state themselves, for the dependencies in pyproject.toml and what these need in
turn. Nothing is fetched. docs/licences.md holds the table; a test compares.
"""

import re
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).resolve().parents[2] / "docs" / "licences.md"
PROJECT = "kafka-load-rebalancer"
UNKNOWN = "unknown"
LONGEST = 60
"""Some packages put the whole text of their licence into the field for its name."""


def licences() -> dict[str, str]:
    """Licence by package, sorted by name, without our own."""
    seen: dict[str, str] = {}
    waiting = [PROJECT]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            installed = distribution(name)
            seen[name] = _licence(installed)
            waiting += _needed(installed)
    del seen[PROJECT]
    return dict(sorted(seen.items()))


def _needed(installed: Distribution) -> list[str]:
    """Names of what it needs here, without extras."""
    requirements = map(Requirement, installed.requires or [])
    return [
        canonicalize_name(row.name) for row in requirements if row.marker is None or row.marker.evaluate({"extra": ""})
    ]


def _licence(installed: Distribution) -> str:
    fields = installed.metadata.json
    named = fields.get("license_expression") or fields.get("license") or ""
    if named and len(named) <= LONGEST and "\n" not in named:
        return str(named)
    classifiers = [row for row in fields.get("classifier", []) if row.startswith("License :: ")]
    return " AND ".join(row.rpartition(" :: ")[2] for row in classifiers) or UNKNOWN


def table() -> str:
    """The rows of the page: each licence with its packages."""
    packages: dict[str, list[str]] = {}
    for name, licence in licences().items():
        packages.setdefault(licence, []).append(name)
    return "".join(f"| {licence} | {', '.join(names)} |\n" for licence, names in sorted(packages.items()))


def page() -> str:
    """The page with the table of now."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(r"(?<=\|---\|---\|\n)(\|.*\n)*", lambda _: table(), text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(table())
