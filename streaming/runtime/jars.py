"""Java and the JVM jars: where they are, whether they are whole, and how they are fetched.

One manifest (`conf/ivy.xml`) pins every version; `conf/jars.sha256` lists the jars that are kept, with the bytes of
each (of what Ivy resolves for Spark only Kafka's and, for tests, Delta's: Spark ships the rest itself, in other
versions). Ivy ships inside pyspark, so Java alone fetches them. The cache lies in the user's cache folder and is shared
by all clones; a jar that is missing, cut short or changed is fetched again.
`python -m streaming.runtime.jars` is the set-up step of the Makefile; with the argument `s3` it fetches those for
checkpoints on S3 as well, with `tests` those of the tests and these.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from streaming.errors import SetUpIncomplete, UsageProblem

PROJECT_ROOT = Path(__file__).resolve().parent.parent.parent
"""Root folder of a clone, for tests: an installed package has none."""
IVY_MANIFEST = Path(__file__).with_name("ivy.xml")
CHECKSUMS = Path(__file__).with_name("jars.sha256")
"""Checksums of the jars. In a clone this file and the manifest are links to `conf`; a package has copies."""
SET_UP = "run `make setup`, or `python -m streaming.runtime.jars` where a package is installed"
JAVA_VERSION_MIN = 17
PRODUCT = ("spark", "broker", "agent")
TESTS = ("tools", "oracle", "broker-oldest", "tiered", "delta")
"""Configurations that tests need besides."""
S3 = ("s3",)
"""Spark's files on S3, fetched only where asked for."""
FETCHED = {"tests": (*PRODUCT, *TESTS, *S3), "s3": (*PRODUCT, *S3)}
"""Configurations by the argument of the set-up."""
FETCH_TIMEOUT_S = 1_800
FETCH_ATTEMPTS_MAX = 3
JARS_PER_LINE = 20
"""Progress is reported once for so many jars."""


def jar_paths(configuration: str) -> list[Path]:
    """Jars of one configuration of the manifest, sorted; raises SetUpIncomplete where one is missing."""
    folder = cache_folder()
    paths = [folder / name for name in _checksums([configuration])]
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        how = f"run `python -m streaming.runtime.jars {configuration}`" if configuration in S3 else SET_UP
        raise SetUpIncomplete(f"jars of {configuration!r} are missing ({', '.join(missing[:3])}): {how}")
    return sorted(paths)


def class_path(configuration: str) -> str:
    """Returns the jars of one configuration as a Java class path; raises SetUpIncomplete if one is missing."""
    return os.pathsep.join(str(path) for path in jar_paths(configuration))


def check_extra_jars(jars: Sequence[Path]) -> None:
    """Raises UsageProblem where a jar of `pipeline.extra_jars` is not there: Spark would start without it."""
    for jar in jars:
        if not jar.is_file():
            raise UsageProblem(f"pipeline.extra_jars: {jar} is not a file")


def cache_folder() -> Path:
    """Folder of the jars; `REBALANCER_JARS` overrides the user's cache folder."""
    chosen = os.environ.get("REBALANCER_JARS")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kafka-load-rebalancer" / "jars"


def java_command() -> str:
    """Path of a Java of version 17 or newer: JAVA_HOME's, else the one on PATH; raises SetUpIncomplete."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not Path(java).exists():
        raise SetUpIncomplete(
            f"Java {JAVA_VERSION_MIN} or newer is needed and none was found: install it, or run `make setup`"
        )
    output = _version_output(java)
    version = re.search(r'version "(\d+)', output)
    if not version or int(version.group(1)) < JAVA_VERSION_MIN:
        first_line = (output.splitlines() or [""])[0]
        raise SetUpIncomplete(f"Java {JAVA_VERSION_MIN} or newer is needed, {java} reports {first_line!r}")
    return java


@lru_cache(maxsize=4)
def _version_output(java: str) -> str:
    """What this Java reports of itself; asked once, since it costs the start of a JVM."""
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr


def ensure_jars(report: Callable[[str], None], configurations: Sequence[str] = PRODUCT) -> None:
    """Fetch what is missing or broken; does nothing where all is whole. Safe to run twice at a time."""
    count = len(_checksums(configurations))
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for attempt in range(1, FETCH_ATTEMPTS_MAX + 1):
            broken = broken_jars(folder, configurations)
            if not broken:
                report(f"jars: {count} whole")
                return
            report(f"jars: fetching {len(broken)} of {count} (attempt {attempt})")
            _fetch(folder, report, configurations)
    broken = broken_jars(folder, configurations)
    if broken:
        raise SetUpIncomplete(
            f"{len(broken)} jars can't be fetched whole, first {broken[0]}: is Maven Central reached?"
        )
    report(f"jars: {count} whole")


def broken_jars(folder: Path, configurations: Sequence[str] = PRODUCT) -> list[str]:
    """Names of jars that are missing from `folder` or whose bytes differ from the pinned ones."""
    return [name for name, digest in _checksums(configurations).items() if _digest(folder / name) != digest]


def _fetch(folder: Path, report: Callable[[str], None], configurations: Sequence[str]) -> None:
    """Resolve the manifest into a fresh folder, then put each whole jar in place by rename."""
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as fresh:
        command = [
            java_command(), "-jar", str(_ivy_jar()), "-ivy", str(IVY_MANIFEST), "-cache", f"{fresh}/ivy",
            "-confs", *configurations, "-types", "jar", "bundle",
            "-retrieve", f"{fresh}/[conf]/[artifact]-[revision].[ext]",
        ]  # fmt: skip
        downloaded = 0
        last_lines: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last_lines = [*last_lines[-4:], line.strip()]
                downloaded += "[SUCCESSFUL ]" in line
                if "[SUCCESSFUL ]" in line and downloaded % JARS_PER_LINE == 0:
                    report(f"jars: {downloaded} downloaded")
            process.wait(timeout=FETCH_TIMEOUT_S)
        pinned = _checksums(configurations)
        for name, digest in pinned.items():
            if _digest(Path(fresh) / name) == digest:
                (folder / name).parent.mkdir(exist_ok=True)
                os.replace(Path(fresh) / name, folder / name)
        if process.returncode != 0 and broken_jars(folder, configurations):
            report("jars: Ivy ended with an error: " + " | ".join(last_lines))


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")  # located, not imported: an import takes seconds
    jars = sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar")) if pyspark and pyspark.origin else []
    if not jars:
        raise SetUpIncomplete("pyspark ships no ivy jar: is pyspark installed whole?")
    return jars[-1]


def _checksums(configurations: Sequence[str]) -> dict[str, str]:
    """Pinned digests by `configuration/file`."""
    lines = CHECKSUMS.read_text().splitlines()
    pinned = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines if line.strip())}
    return {name: digest for name, digest in pinned.items() if name.split("/")[0] in configurations}


def _digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def main() -> int:
    """Set-up step: checks Java, fetches missing jars, prints the progress. Returns the exit code."""
    try:
        java_command()
        ensure_jars(lambda line: print(line, flush=True), FETCHED.get("".join(sys.argv[1:2]), PRODUCT))
    except SetUpIncomplete as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
