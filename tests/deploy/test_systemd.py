"""The units of deploy/systemd, judged by systemd's own tools in a folder that stands for a machine's root. No service
manager of ours runs them."""

import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming.cli import rebalancer
from tests.deploy.objects import ROLES, ROOT

UNITS = ROOT / "deploy" / "systemd"
SYSTEM = Path("/usr/lib/systemd/system")
PROGRAM = "/opt/rebalancer/.venv/bin/rebalancer"
SERVICES = (
    "rebalancer-collect@1-2", "rebalancer-pipeline", "rebalancer-control", "rebalancer-serve",
    "rebalancer-collect-cluster@eu-west", "rebalancer-control-cluster@eu-west",
)  # fmt: skip
TARGETS = ("rebalancer", "rebalancer-clusters", "rebalancer-cluster@eu-west")
EXPOSURE_MAX = 1.3
"""Of 10; the page has the figures."""
TIMEOUT_S = 300

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not SYSTEM.is_dir(), reason="systemd-analyze is not installed"
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a machine on which the units and a program are installed as docs/systemd.md has it."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(UNITS, root / "etc/systemd/system")
    targets = root / "usr/lib/systemd/system"
    targets.mkdir(parents=True)
    for target in SYSTEM.glob("*.target"):
        if not target.is_symlink():
            shutil.copy(target, targets)
    for path in (PROGRAM, "/bin/kill"):
        program = root / path.removeprefix("/")
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return root


def analyze(machine: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["systemd-analyze", f"--root={machine}", "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def test_who_makes_plans_may_load_machine_code() -> None:
    """With it the rule makes each plan fail: `PermissionError: cannot allocate executable memory`."""
    strict = {file.stem for file in UNITS.glob("*.service") if "\nMemoryDenyWriteExecute=yes\n" in file.read_text()}
    assert strict == {"rebalancer-collect@", "rebalancer-collect-cluster@"}


@needs_systemd
def test_systemd_has_nothing_against_the_units(machine: Path) -> None:
    files = [str(machine / f"etc/systemd/system/{name}.service") for name in SERVICES]
    files += [str(machine / f"etc/systemd/system/{name}.target") for name in TARGETS]
    done = analyze(machine, "verify", "--man=no", *files)
    ours = [line for line in done.stderr.splitlines() if "rebalancer" in line or "10-common" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@needs_systemd
def test_systemd_notices_a_unit_that_is_wrong(machine: Path) -> None:
    """Or the test above would show nothing."""
    wrong = machine / "etc/systemd/system/wrong.service"
    wrong.write_text("[Service]\nExecStart=/opt/missing\nRestart=perhaps\n")
    try:
        done = analyze(machine, "verify", "--man=no", str(wrong))
    finally:
        wrong.unlink()
    assert done.returncode == 1
    assert "Failed to parse service restart specifier" in done.stderr


@needs_systemd
@pytest.mark.parametrize("service", SERVICES)
def test_a_service_may_do_little(machine: Path, service: str) -> None:
    done = analyze(machine, "security", "--offline=true", f"{service}.service")
    match = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert match, done.stdout + done.stderr
    assert float(match.group(1)) <= EXPOSURE_MAX


def unit(file: Path) -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(file.read_text(encoding="utf-8"))
    return parser


def roles_wanted(target: str) -> list[tuple[str, bool]]:
    """(Role, whether it is that of one of several clusters) of each service that a target starts."""
    found = []
    for name in unit(UNITS / target)["Unit"]["Wants"].split():
        file = re.sub("@.*", "@.service", name) if "@" in name else name
        start = unit(UNITS / file)["Service"]["ExecStart"].split()
        assert start[0] == PROGRAM
        options = [argument for argument in start[2:] if argument.startswith("--")]
        shown = CliRunner().invoke(rebalancer, [start[1], "--help"]).output
        assert all(option in shown for option in options)
        if "--cluster" in options:
            assert name.endswith("@%i.service"), "%I would make a slash of the hyphen in a name"
            assert start[-1] == "%i"
        found.append((start[1], "--cluster" in options))
    return found


def test_each_role_has_a_unit_that_starts_it_and_the_target_starts_all() -> None:
    assert sorted(roles_wanted("rebalancer.target")) == [(role, False) for role in sorted(ROLES)]


def test_each_of_several_clusters_has_a_collector_and_a_control_beside_what_works_for_all() -> None:
    assert roles_wanted("rebalancer-clusters.target") == [("pipeline", False), ("serve", False)]
    assert roles_wanted("rebalancer-cluster@.target") == [("collect", True), ("control", True)]
    assert unit(UNITS / "rebalancer-cluster@.target")["Unit"]["PartOf"] == "rebalancer-clusters.target"
    for role in ("collect", "control"):
        part_of = unit(UNITS / f"rebalancer-{role}-cluster@.service")["Unit"]["PartOf"]
        assert part_of == "rebalancer-cluster@%i.target"


def test_a_reload_sends_the_signal_that_lets_roles_read_their_settings_again() -> None:
    common = unit(UNITS / "rebalancer-.service.d" / "10-common.conf")["Service"]
    assert common["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert "signal.SIGHUP" in (ROOT / "streaming" / "commands" / "reloading.py").read_text(encoding="utf-8")


def test_a_batch_under_way_can_be_finished() -> None:
    source = (ROOT / "streaming" / "pipeline" / "run.py").read_text(encoding="utf-8")
    grace_s = float(re.findall(r"^STOP_GRACE_S = ([\d.]+)$", source, re.MULTILINE)[0])
    assert int(unit(UNITS / "rebalancer-pipeline.service")["Service"]["TimeoutStopSec"]) >= 2 * grace_s
    common = unit(UNITS / "rebalancer-.service.d" / "10-common.conf")["Service"]
    assert common["KillMode"] == "mixed", "else Java is ended in the middle of a batch"


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="systemd-tmpfiles is not installed")
def test_folders_are_made_with_their_modes(tmp_path: Path) -> None:
    """As the user of the test, in a folder of its own: owners of the lines are left out."""
    lines = [line.split() for line in (UNITS / "rebalancer.tmpfiles").read_text().splitlines() if line[:1] not in "#"]
    file = tmp_path / "lines.conf"
    file.write_text("".join(f"{kind} {path} {mode} - - -\n" for kind, path, mode, *_ in lines))
    (tmp_path / "etc/rebalancer").mkdir(parents=True)
    (tmp_path / "etc/rebalancer/environment").touch(mode=0o644)
    command = ["systemd-tmpfiles", "--create", f"--root={tmp_path}", str(file)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    modes = {path: (tmp_path / path).stat().st_mode & 0o777 for path in ("etc/rebalancer", "var/lib/rebalancer")}
    assert modes == {"etc/rebalancer": 0o750, "var/lib/rebalancer": 0o750}
    assert (tmp_path / "etc/rebalancer/environment").stat().st_mode & 0o777 == 0o600
