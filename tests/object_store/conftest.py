"""One S3 server for all tests of this folder; each test has a prefix and a proxy of its own."""

import importlib.util
import uuid
from collections.abc import Iterator

import pytest

from streaming.settings import StorageSettings
from streaming.tables.object_stores import use_object_store
from tests.s3 import BUCKET, CREDENTIALS, Proxy, proxy, s3_server


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask_cors") is None:
        pytest.skip("moto is not installed: deploy/extras/s3-tests.lock")
    with s3_server() as url:
        yield url


@pytest.fixture
def store(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy before the store; tables below `s3://` are reached through it."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with proxy(s3_url) as before:
        use_object_store(StorageSettings(tables=f"s3://{BUCKET}/tables", s3_endpoint=before.url))
        yield before
    use_object_store(StorageSettings())


@pytest.fixture
def root(store: Proxy) -> str:
    """Where the tables of this test lie."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/tables"
