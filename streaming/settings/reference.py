"""The text of conf/reference.yaml, made of the settings.

`python -m streaming.settings.reference > conf/reference.yaml` writes the file; a test compares the two.
"""

import json
import textwrap

from streaming.settings import Section, Settings

HEAD = """\
# Every setting with its default. A file needs only what it changes; unknown keys are refused.
# The environment sets a value by REBALANCER_SECTION__KEY=value (two underscores), or by flag: --set section.key=value.
# There lists may be a,b, and null or nothing unsets what may be null here.
# Order: defaults < file < environment < flags. `rebalancer config` shows what holds and where it came from.
# Several clusters: `clusters:` names each with sections of its own, which override those here; see docs/clusters.md.
# Made by `python -m streaming.settings.reference`.
"""
COMMENT_COLUMNS = 116


def reference() -> str:
    """The file: each section with its settings, own ones before inherited ones, each with description and default."""
    return HEAD + "".join(f"\n{_section(name, section)}\n" for name, section in Settings())


def _section(name: str, section: Section) -> str:
    summary = (type(section).__doc__ or "").partition("\n")[0]
    lines = [f"# {summary}", f"{name}:"]
    defaults = section.model_dump(mode="json")
    own = type(section).__annotations__
    for key, field in sorted(type(section).model_fields.items(), key=lambda item: item[0] not in own):
        lines += textwrap.wrap(
            field.description or "", COMMENT_COLUMNS, initial_indent="  # ", subsequent_indent="  # "
        )
        lines.append(f"  {key}: {json.dumps(defaults[key], ensure_ascii=False)}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(reference(), end="")
