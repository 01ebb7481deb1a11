"""The defaults that pages show of settings are those of the policies."""

import re
from collections.abc import Iterator
from pathlib import Path

from streaming.config import flatten
from streaming.settings import Settings

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("trigger.md", "migrate-from-cruise-control.md")
UNITS = {"": 1, "%": 0.01, "s": 1_000, "min": 60_000, "h": 3_600_000, "days": 86_400_000, "kB/s": 1e3, "MB/s": 1e6}


def shown(page: str) -> Iterator[tuple[str, list[str]]]:
    """Cell that names settings, such as "`planner.band` for plans; `trigger.enter_ratio`", and the cells after it."""
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        for place, cell in enumerate(cells[1:-1], 1):
            if re.match(r"`(trigger|planner|control)\.\w+`", cell):
                yield cell, cells[place + 1 :]


def values(text: str) -> list[object]:
    """The values of a cell, such as "3 of 5" or "10 min"; none of a text that is no value.

    >>> values("3 %; 1.30"), values("3 of 5"), values("10 min"), values("`noise`"), values("see below")
    ([0.03, 1.3], [3.0, 5.0], [600000.0], ['noise'], [])
    """
    found: list[object] = []
    for one in re.split(r"; | of ", text):
        number = re.fullmatch(r"([\d.]+) ?(\S*)", one)
        if number and number[2] in UNITS:
            found.append(round(float(number[1]) * UNITS[number[2]], 9))
        elif quoted := re.fullmatch(r"`(.+)`", one):
            found.append({"true": True, "false": False}.get(quoted[1], quoted[1]))
    return found


def test_tables_show_the_defaults_of_the_settings() -> None:
    defaults, compared = flatten(Settings()), 0
    for page in PAGES:
        for cell, after in shown(page):
            section = cell[1:].partition(".")[0]
            names = re.findall(r"`(?:(\w+)\.)?(\w+)`", cell)
            written = values(after[0])
            if written and len(written) == len(names):
                keys = [f"{above or section}.{name}" for above, name in names]
                assert [defaults[key] for key in keys] == written, f"{page}: {cell}"
                compared += len(keys)
    assert compared >= 20
