"""What tests of serve share: tables that have everything, written once and copied for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.runtime import accounts
from streaming.serve.snapshot import Snapshot, read_snapshot
from streaming.settings import Settings
from tests.issuer import LocalIssuer, local_issuer
from tests.serve.believing import NOW_S
from tests.serve.served import Served
from tests.serve.synthetic import NOW_MS, Synthetic, settings_for, skewed_cluster


@pytest.fixture(scope="session")
def skewed_tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Those of `skewed_cluster` at `NOW_MS`; only to be copied."""
    root = settings_for(tmp_path_factory.mktemp("skewed")).storage.tables
    skewed_cluster(Synthetic(root), NOW_MS)
    return root


@pytest.fixture
def skewed_folder(skewed_tables: str, tmp_path: Path) -> Path:
    """A folder of the test's own for `settings_for`: its tables are those of `skewed_cluster` at `NOW_MS`."""
    shutil.copytree(skewed_tables, settings_for(tmp_path).storage.tables)
    return tmp_path


@pytest.fixture(scope="session")
def skewed_snapshot(skewed_tables: str) -> Snapshot:
    """What serve reads of them."""
    return read_snapshot(settings_for(Path(skewed_tables).parent), NOW_MS)


@pytest.fixture
def root(tables_in_memory: str) -> str:
    return tables_in_memory


@pytest.fixture
def settings(root: str) -> Settings:
    """Settings of a cluster whose tables lie in memory; the test writes their rows."""
    return settings_for(root)


@pytest.fixture
def synthetic(settings: Settings) -> Synthetic:
    """The writer of the tables that `settings` names."""
    return Synthetic(settings.storage.tables)


@pytest.fixture(scope="session", autouse=True)
def _cheap_hashes() -> Iterator[None]:
    """Passwords are hashed at next to no cost, as nobody guesses here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(accounts.COST, "n", 2)
        yield


@pytest.fixture
def served(tmp_path: Path, root: str) -> Served:
    return Served(tmp_path, root)


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with local_issuer(NOW_S) as state:
        yield state
