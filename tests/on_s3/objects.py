"""Objects of a bucket by what they are: data of tables, entries of their logs, files of checkpoints."""

import re
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus

from tests.s3 import BUCKET

NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
TIMEOUT_S = 60.0
TRIES, RETRY_INTERVAL_S = 5, 1.0
GROUP = re.compile(r"(?:.*/)?(?P<area>tables|checkpoints)/(?P<name>[^/]+)/(?P<rest>.*)")


@dataclass(slots=True)
class ObjectCounts:
    """Objects of one table, or of one query's checkpoint."""

    data: int = 0
    log: int = 0
    size_bytes: int = 0

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)

    @staticmethod
    def total(groups: Mapping[str, Mapping[str, int]]) -> str:
        """All groups together, by area."""
        shown = []
        for area in ("tables", "checkpoints"):
            rows = [row for name, row in groups.items() if name.startswith(area)]
            count = sum(row["data"] + row["log"] for row in rows)
            shown.append(f"{area} {count} ({sum(row['size_bytes'] for row in rows) / 1e6:.1f} MB)")
        return ", ".join(shown)


def count_objects(store_url: str, prefix: str = "") -> dict[str, ObjectCounts]:
    """Objects by `tables/NAME` and `checkpoints/NAME`."""
    groups: dict[str, ObjectCounts] = {}
    for key, size in objects(store_url, prefix):
        match = GROUP.fullmatch(key)
        if match is None:
            continue
        counts = groups.setdefault(f"{match['area']}/{match['name']}", ObjectCounts())
        counts.size_bytes += size
        if match["rest"].startswith("_delta_log"):
            counts.log += 1
        else:
            counts.data += 1
    return groups


def objects(store_url: str, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Key and size of every object below the prefix."""
    token = ""
    while True:
        query = {"list-type": "2", "prefix": prefix, **({"continuation-token": token} if token else {})}
        url = f"{store_url}/{BUCKET}?{urllib.parse.urlencode(query)}"
        page = ElementTree.fromstring(_answer(url))  # noqa: S314 - of a server of our own
        for row in page.iter(f"{NAMESPACE}Contents"):
            yield row.findtext(f"{NAMESPACE}Key", ""), int(row.findtext(f"{NAMESPACE}Size", "0"))
        token = page.findtext(f"{NAMESPACE}NextContinuationToken", "")
        if not token:
            return


def _answer(url: str) -> bytes:
    """The store's server fails now and then at a listing while objects come and go: then it is asked again."""
    for _ in range(TRIES - 1):
        try:
            return _read(url)
        except urllib.error.HTTPError as error:
            if error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            time.sleep(RETRY_INTERVAL_S)
    return _read(url)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - a server of our own
        return bytes(answer.read())
