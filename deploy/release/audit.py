"""Known weaknesses of the locked packages: `python deploy/release/audit.py build/audit/bin/pip-audit`.

pip-audit ends with 0 and prints that it has seen no weakness if its service knows none of the packages. Here such a run
fails: 1 if a package has a known weakness, 3 if a package could not be audited, else 0.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LOCKS = ("requirements.lock", "deploy/extras/msk.lock", "deploy/extras/kerberos.lock")
"""Of the product and the tests, and of what users add. The image holds a part of the first."""
ROOT = Path(__file__).resolve().parents[2]
WEAK, NOT_AUDITED = 1, 3
SHOWN_MAX = 5


def outcome(dependencies: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Exit code and lines for what pip-audit reports of each package."""
    weak = [
        f"{row['name']} {row['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no release'}"
        for row in dependencies
        for found in row.get("vulns", [])
    ]
    skipped = [row["skip_reason"] for row in dependencies if "skip_reason" in row]
    audited = len(dependencies) - len(skipped)
    lines = [*weak, f"{audited} of {len(dependencies)} packages audited, {len(weak)} known weaknesses"]
    if skipped:
        lines += [f"not audited: {reason}" for reason in skipped[:SHOWN_MAX]]
        lines += [f"not audited: {len(skipped) - SHOWN_MAX} more"] if len(skipped) > SHOWN_MAX else []
    if weak:
        return WEAK, lines
    return (NOT_AUDITED if skipped or not dependencies else 0), lines


def audited(pip_audit: str, lock: str) -> list[dict[str, Any]]:
    """What pip-audit reports of each package of a lock; raises ValueError if it reports nothing."""
    command = [pip_audit, "--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run([*command, "--requirement", str(ROOT / lock)], capture_output=True, text=True, check=False)
    try:
        dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        raise ValueError(f"pip-audit reports nothing (exit code {done.returncode}): {done.stderr[-2_000:]}") from None
    return dependencies


def main(arguments: Sequence[str]) -> int:
    """Audit each lock; the greatest exit code."""
    codes = []
    for lock in LOCKS:
        try:
            code, lines = outcome(audited(arguments[0], lock))
        except ValueError as error:
            code, lines = NOT_AUDITED, [str(error)]
        print("\n".join(f"{lock}: {line}" for line in lines))
        codes.append(code)
    return WEAK if WEAK in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
