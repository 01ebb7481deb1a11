"""How tables on an object store are reached: the options of delta-rs, and its errors in one line.

Credentials are none of these options: delta-rs reads them from the environment (`AWS_ACCESS_KEY_ID` and so on) or from
the files that the environment names. The options hold for the whole process, since roots are passed on as plain text.
"""

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from streaming.errors import UsageProblem
from streaming.settings import StorageSettings
from streaming.tables.places import scheme_of

S3_SCHEMES = ("s3", "s3a")
BOUNDS = {
    # delta-rs's own are 10 tries within 180 s: a control that waits so long for its lease would look alive and not be.
    "connect_timeout": "5s",
    "timeout": "20s",
    "max_retries": "5",
    "retry_timeout": "30s",
}
CONDITIONAL_PUT = {"aws_conditional_put": "etag"}
"""Two commits of one version: the store refuses the second. The environment must not turn that off."""
UNSAFE = ("AWS_S3_ALLOW_UNSAFE_RENAME", "AWS_S3_LOCKING_PROVIDER")
"""Variables by which delta-rs commits in another way than by a conditional put."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Variables that name another store than AWS's own."""

OF_CREDENTIALS = (
    "ExpiredToken", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId", "InvalidClientTokenId",
    "SignatureDoesNotMatch",
)  # fmt: skip
"""Codes of a store that takes these credentials from nobody, whatever is asked for."""
REQUEST = "Error performing"
"""Text that each error of a request contains."""
WHAT_TO_DO = (
    "; give new credentials by the environment or its files, then start again: nothing that was written is lost"
)

NO_REASON = "; the store names no reason, as for credentials that have expired"
"""The answer to a HEAD has no body, and so no code."""

_options: dict[str, str] = {}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_REFUSAL = re.compile(r"<Code>(?P<code>[^<]*)</Code>(\s*<Message>(?P<message>[^<]*)</Message>)?")


_UNNAMED = re.compile(r"Status Code: 400\b[^:]*: ?null\)?:null\b|400 Bad Request$")
_WITHIN = re.compile(
    rf"(?P<kind>Generic \w+ error): {REQUEST} \S+ \S+ in [^<]*? - "
    r"(Server returned non-2xx status code: )?(?P<cause>[^<]*)"
)
"""Within an error of Parquet the chain is one line."""


def use_object_store(*storages: StorageSettings, environment: Mapping[str, str] = os.environ) -> None:
    """Lets this process reach tables on S3 as the settings ask; raises UsageProblem where that is not safe: the options
    of before then hold. Settings of several clusters differ in their places alone.
    """
    options: dict[str, str] = {}
    for storage in storages:
        if any(scheme_of(place) in S3_SCHEMES for place in (storage.tables, storage.checkpoints)):
            options |= s3_options(storage, environment)
    _options.update(options)  # first: threads that read tables meanwhile must lack none
    for name in _options.keys() - options.keys():
        del _options[name]


def s3_options(storage: StorageSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Options of delta-rs for S3; raises UsageProblem.

    >>> options = s3_options(StorageSettings(s3_endpoint="http://127.0.0.1:9000"), {})
    >>> options["aws_endpoint_url"], options["allow_http"], options["aws_conditional_put"]
    ('http://127.0.0.1:9000', 'true', 'etag')
    """
    for place in (storage.tables, storage.checkpoints):
        _check_no_login(place)
    for name in UNSAFE:
        if environment.get(name, "false").lower() not in ("", "false", "0"):
            raise UsageProblem(f"environment {name} is set: tables on S3 need conditional puts, unset it")
    endpoint = storage.s3_endpoint or next((environment[name] for name in ENDPOINTS if environment.get(name)), None)
    options = {**BOUNDS, **CONDITIONAL_PUT, "allow_http": "false"}
    if endpoint is not None:
        options |= {"aws_endpoint_url": endpoint, "allow_http": str(_may_be_http(endpoint, storage)).lower()}
    if storage.s3_region is not None:
        options["aws_region"] = storage.s3_region
    return options


def storage_options(uri: str) -> dict[str, str] | None:
    """Options for the table at `uri`; None for a folder, and for a store that the environment alone describes."""
    return dict(_options) if _options and scheme_of(uri) in S3_SCHEMES else None


def refusal(error: Exception) -> str:
    """Error of an object store in one line: what was asked for in general, the cause at the end of the chain, and what
    the store answered.

    >>> refusal(OSError("Generic S3 error\\n  ↳ Error performing GET http://s/b?x in 2ms\\n   ↳ operation timed out"))
    'Generic S3 error: operation timed out'
    >>> refusal(OSError("Generic S3 error\\n ↳ 404 Not Found\\n  ↳ <?xml?>\\n<Error><Code>NoSuchBucket</Code></Error>"))
    'Generic S3 error: 404 Not Found: NoSuchBucket'
    >>> refusal(OSError("Parquet: Generic S3 error: Error performing GET http://s/b in 2ms - 404 Not Found: <?xml"))
    'Generic S3 error: 404 Not Found'
    """
    text = _ESCAPE.sub("", str(error))
    lines = [line.strip() for line in text.split("↳")]
    plain = [line.splitlines()[0].strip() for line in lines if line and not line.startswith("<")]
    if not plain:
        return type(error).__name__
    within = _WITHIN.search(plain[0])
    if within:
        plain = [within["kind"], within["cause"].strip(": ")]
    parts = [plain[0], *(plain[-1:] if len(plain) > 1 else ())]
    answered = _REFUSAL.search(text)
    if answered:
        parts.append(": ".join(part for part in (answered["code"], answered["message"]) if part))
    shown = ": ".join(parts)
    return shown + advice(shown)


def advice(refused: str) -> str:
    """What to do about credentials that a store refused in these words, to be put behind them; empty for all else.

    >>> advice("400 Bad Request: ExpiredToken: The provided token has expired.")[:22]
    '; give new credentials'
    >>> advice("S3Exception: (Service: S3, Status Code: 400, Request ID: null):null: Bad Request")[:22]
    '; the store names no r'
    >>> advice("403 Forbidden: AccessDenied")
    ''
    """
    if WHAT_TO_DO in refused:
        return ""
    if any(code in refused for code in OF_CREDENTIALS):
        return WHAT_TO_DO
    return NO_REASON + WHAT_TO_DO if _UNNAMED.search(refused) else ""


def _check_no_login(place: str) -> None:
    if "@" in urlsplit(place).netloc:
        raise UsageProblem(
            "storage: a URI of an object store holds a login, which logs would show: give it by AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )


def _may_be_http(endpoint: str, storage: StorageSettings) -> bool:
    parts = urlsplit(endpoint)
    if "@" in parts.netloc:
        raise UsageProblem("storage.s3_endpoint holds a login: give it by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if parts.scheme != "http":
        return False
    if not storage.s3_allow_http and not _is_loopback(parts.hostname or ""):
        raise UsageProblem(
            f"storage.s3_endpoint: {endpoint} would send loads and approvals unencrypted: use https, or set "
            "storage.s3_allow_http"
        )
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
