"""What counts objects in runs by hand: an answer of the store's server that fails now and then ends no run."""

import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from tests.on_s3 import objects
from tests.on_s3.objects import ObjectCounts, count_objects

PAGE = (
    b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Contents><Key>run/tables/lease/a</Key>'
    b"<Size>7</Size></Contents></ListBucketResult>"
)


class Store(BaseHTTPRequestHandler):
    """Answers with the codes in turn, the last one again and again."""

    codes: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(PAGE if code == 200 else b"")

    def log_message(self, *_: object) -> None:
        """Not into the output of the tests."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(objects, "RETRY_INTERVAL_S", 0.0)
    with HTTPServer(("127.0.0.1", 0), Store) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_listing_that_fails_is_asked_for_again(url: str) -> None:
    Store.codes = [500, 503, 200]
    assert count_objects(url) == {"tables/lease": ObjectCounts(data=1, size_bytes=7)}


@pytest.mark.parametrize("code", [500, 403])
def test_one_that_fails_for_good_is_an_error(url: str, code: int) -> None:
    Store.codes = [code]
    with pytest.raises(urllib.error.HTTPError, match=str(code)):
        count_objects(url)
