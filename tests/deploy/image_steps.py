"""The steps of the image's Dockerfile, run in a clean root: `make image-steps`, as root on Debian.

For machines without a container engine. In the place of the base image stands a Debian that `mmdebstrap` makes, with
its own Python 3.11. Each stage is a folder; each RUN runs in it by chroot, with mounts and processes of its own. At the
end the image's user starts the product with no network but loopback: whatever would be fetched at a start fails there.
"""

import fnmatch
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "compose" / "Dockerfile"
RELEASE = "bookworm"
BASE_PACKAGES = "python3,python3-venv,ca-certificates"
OF_THE_MACHINE = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/apt/sources.list", "/etc/apt/sources.list.d",
                  "/etc/apt/apt.conf.d", "/usr/local/share/ca-certificates", "/etc/ssl/certs")  # fmt: skip
"""How this machine reaches its packages: taken into the clean root for the steps, not a part of the image."""
STEP_TIMEOUT_S = 1_800
TRIED_AT_THE_END = (
    "rebalancer --version",
    "rebalancer config",
    "rebalancer demo --rate 4000 --topics orders,returns --home /var/lib/rebalancer/demo",
)
"""The demo needs everything that is in the image: brokers, Spark with its jars, the page."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the build, as far as it has come."""

    folder: Path
    environment: Mapping[str, str]
    workdir: str = "/"
    user: str = "root"
    entrypoint: tuple[str, ...] = field(default=())


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Instruction and its text, lines that go on joined.

    >>> list(instructions("# why\\nFROM a AS b\\nRUN one \\\\\\n    && two\\n"))
    [('FROM', 'a AS b'), ('RUN', 'one && two')]
    """
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    for line in filter(None, joined.splitlines()):
        name, _, rest = line.partition(" ")
        yield name, rest.strip()


def build(text: str, base: Path, work: Path) -> Stage:
    """Run all instructions; returns the last stage. `base` is an archive of the clean root."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for name, rest in instructions(text):
        sys.stdout.write(f"{name} {rest[:110]}\n")
        sys.stdout.flush()
        if name == "ARG":
            argument, _, value = rest.partition("=")
            arguments[argument] = value
        elif name == "FROM":
            source, _, label = rest.partition(" AS ")
            folder = work / (label or "image")
            stage = _begun(stages.get(source), base, folder)
            stages[label or "image"] = stage
        else:
            assert stage is not None, "the first instruction is FROM"
            stage = _done(name, rest, stage, stages)
            stages[stage.folder.name] = stage
    assert stage is not None
    return stage


def _begun(source: Stage | None, base: Path, folder: Path) -> Stage:
    folder.mkdir()
    if source is not None:
        subprocess.run(["cp", "--archive", "--reflink=auto", f"{source.folder}/.", str(folder)], check=True)
        return replace(source, folder=folder)
    subprocess.run(["tar", "--extract", "--file", str(base), "--directory", str(folder), "--exclude=./dev/*"],
                   check=True)  # fmt: skip
    (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    return Stage(folder, {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"})


def _done(name: str, rest: str, stage: Stage, stages: Mapping[str, Stage]) -> Stage:
    if name == "ENV":
        pairs = (pair.split("=", 1) for pair in shlex.split(rest))
        values = {key: Template(value).safe_substitute(stage.environment) for key, value in pairs}
        return replace(stage, environment={**stage.environment, **values})
    if name == "WORKDIR":
        (stage.folder / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return replace(stage, workdir=rest)
    if name == "USER":
        return replace(stage, user=rest)
    if name == "ENTRYPOINT":
        return replace(stage, entrypoint=tuple(re.findall(r'"([^"]+)"', rest)))
    if name == "COPY":
        _copy(rest, stage, stages)
    elif name == "RUN":
        with _packages_of_the_machine(stage.folder) as environment:
            _run(stage, rest, environment)
    else:
        assert name in ("EXPOSE", "HEALTHCHECK"), f"instruction {name} is unknown here"
    return stage


def _copy(rest: str, stage: Stage, stages: Mapping[str, Stage]) -> None:
    if rest == ". .":
        ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
        target = stage.folder / stage.workdir.lstrip("/")
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in tracked.split("\0"):
            if name and is_sent(name, ignored):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
        return
    source, path, target_path = re.fullmatch(r"--from=(\S+) (\S+) (\S+)", rest).groups()  # type: ignore[union-attr]
    target = stage.folder / target_path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", str(stages[source].folder / path.lstrip("/")), str(target)], check=True)


def is_sent(name: str, ignored: Sequence[str]) -> bool:
    """Whether a file is part of the build's context: the last line of .dockerignore that fits decides."""
    sent = True
    for line in ignored:
        pattern = line.lstrip("!")
        if not line or line.startswith("#"):
            continue
        if pattern == "*" or name == pattern or name.startswith(f"{pattern}/") or fnmatch.fnmatch(name, pattern):
            sent = line.startswith("!")
    return sent


@contextmanager
def _packages_of_the_machine(folder: Path) -> Iterator[dict[str, str]]:
    """While it is entered, the root reaches packages as this machine does; what it had comes back after."""
    before = Path(tempfile.mkdtemp(prefix="before-", dir=folder.parent))
    places = [(path, folder / path.lstrip("/"), before / path.lstrip("/")) for path in OF_THE_MACHINE]
    places = [place for place in places if os.path.exists(place[0])]
    for path, inside, kept in places:
        if inside.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(inside), str(kept))
        inside.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--recursive", "--dereference", path, str(inside)], check=True)
    passed = re.compile(r"(PIP_|SSL_|REQUESTS_CA|JAVA_TOOL|https?_proxy|no_proxy)", re.IGNORECASE)
    try:
        yield {name: value for name, value in os.environ.items() if passed.match(name)}
    finally:
        for _, inside, kept in places:
            subprocess.run(["rm", "--recursive", "--force", str(inside)], check=True)
            if kept.exists():
                shutil.move(str(kept), str(inside))
        shutil.rmtree(before)


def _run(stage: Stage, command: str, environment: Mapping[str, str], *, has_network: bool = True) -> None:
    """Run a command in the stage; what it prints is shown. Raises CalledProcessError."""
    root = shlex.quote(str(stage.folder))
    values = {**environment, **stage.environment, "HOME": "/root" if stage.user == "root" else f"/home/{stage.user}"}
    inside = " ".join(
        ["exec", "chroot", f"--userspec={stage.user}", root, "/usr/bin/env", "-i",
         *(shlex.quote(f"{name}={value}") for name, value in values.items()),
         "/bin/sh", "-c", shlex.quote(f"cd {stage.workdir} && {command}")]
    )  # fmt: skip
    # The root is a mount of its own, as in a container: Java asks for the volume of a folder, and Kafka takes a log dir
    # without an answer for one that has failed.
    mounts = (
        f"mkdir -p {root}/proc {root}/dev && mount --bind {root} {root} && mount -t proc proc {root}/proc && "
        f"mount --rbind /dev {root}/dev"
    )
    script = f"set -e; {mounts}; {'' if has_network else 'ip link set lo up; '}{inside}"
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if has_network else ["--net"])]
    subprocess.run([*alone, "/bin/sh", "-c", script], check=True, timeout=STEP_TIMEOUT_S)


def main() -> None:
    """Build, then try the product in what was built."""
    for needed in ("mmdebstrap", "unshare", "ip"):
        if shutil.which(needed) is None:
            sys.exit(f"error: {needed} is needed: install mmdebstrap, util-linux, iproute2")
    if os.geteuid() != 0:
        sys.exit("error: only root may make a root and change into it")
    with tempfile.TemporaryDirectory(prefix="image-steps-") as folder:
        base = Path(folder) / "base.tar"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={BASE_PACKAGES}", RELEASE, str(base)]
        subprocess.run(command, check=True, timeout=STEP_TIMEOUT_S)
        image = build(DOCKERFILE.read_text(encoding="utf-8"), base, Path(folder))
        # As container engines do; Spark asks for the address of its own host's name.
        hosts = f"127.0.0.1 localhost {socket.gethostname()}\n"
        (image.folder / "etc" / "hosts").write_text(hosts, encoding="utf-8")
        for tried in TRIED_AT_THE_END:
            sys.stdout.write(f"without a network: {tried}\n")
            sys.stdout.flush()
            _run(image, tried, {}, has_network=False)
        size = subprocess.run(["du", "-sm", str(image.folder)], check=True, capture_output=True, text=True).stdout
        sys.stdout.write(f"all steps done; the image holds {size.split()[0]} MB, {RELEASE} included\n")


if __name__ == "__main__":
    main()
