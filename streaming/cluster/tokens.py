"""Tokens by which clients log in to the brokers: fetched by client credentials, signed for AWS MSK, or from a file.

A source hands out the token that is good now (RFC 6749, KIP-768). It knows nothing of Kafka's clients;
`streaming.cluster.clients` gives each of them the source in its own form. A token for MSK is a request
`kafka-cluster:Connect` that is signed and never sent: the signed URL (AWS Signature Version 4, in the query) in base64,
as AWS's own aws-msk-iam-sasl-signer makes it. Credentials and signature are botocore's, which is installed on request.
"""

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
import structlog

from streaming.errors import ClusterUnreachable, SetUpIncomplete, UsageProblem
from streaming.runtime import clocks
from streaming.runtime.http_answers import HTTP_ERRORS, verification
from streaming.runtime.logs import with_log_fields
from streaming.runtime.secrets import oauthbearer_client_secret, oauthbearer_file_token, without_user_info
from streaming.settings import KafkaSettings

log = structlog.get_logger()

RENEWED_AT_SHARE = 0.8
"""Share of a token's life after which it is renewed, as `sasl.login.refresh.window.factor` of Java's clients."""
LIFE_ASSUMED_MS = 300_000
"""Assumed life of a token that does not show when it expires, ms."""
ATTEMPTS_MAX = 3
ATTEMPT_PAUSE_S = 0.2
PAUSE_AFTER_FAILURE_MS = 1_000
"""Each connection asks for a token: meanwhile they get the failure that is known."""
LOG_PAUSE_MS = 10_000
ANSWER_BYTES_MAX = 1_000_000
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""RFC 6750, 2.1. Anything else could add fields to the message to the broker."""
ERROR_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MSK_LIFE_S = 900
"""The longest that brokers accept. botocore renews temporary credentials when they have so long to live."""
MSK_SERVICE = "kafka-cluster"
MSK_ACTION = "kafka-cluster:Connect"
MSK_USER_AGENT = "kafka-load-rebalancer"
REGION_OF_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:\d+$")
NO_CREDENTIALS = (
    "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name kafka.sasl_aws_msk_iam_profile, "
    "or run where AWS gives a role"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the time in which it can be used, ms since 1970 UTC."""

    value: str = field(repr=False)
    obtained_ms: int
    expires_ms: int

    @property
    def renewal_ms(self) -> int:
        """When another one is to be fetched."""
        return self.obtained_ms + int((self.expires_ms - self.obtained_ms) * RENEWED_AT_SHARE)


class TokenSource(Protocol):
    """Hands out tokens, to several threads too."""

    def token(self) -> Token:
        """A token that has not expired; raises ClusterUnreachable, UsageProblem."""


class FileTokens:
    """The token that a file holds when it is asked for: whoever renews it writes the file again."""

    def __init__(self, settings: KafkaSettings, now_ms: Callable[[], int] = clocks.now_ms) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._last: Token | None = None
        self._logged_ms = 0
        self._log_failure = with_log_fields(_log_failure)  # clients ask in threads of their own

    def token(self) -> Token:
        now_ms = self._now_ms()
        try:
            self._last = self._read(now_ms)
        except (ClusterUnreachable, UsageProblem) as error:
            # At first the error itself is shown, and later each connection asks.
            if self._last is not None and not 0 <= now_ms - self._logged_ms < LOG_PAUSE_MS:
                self._logged_ms = now_ms
                self._log_failure(error, self._last, now_ms)
            raise
        return self._last

    def _read(self, now_ms: int) -> Token:
        path = self._settings.sasl_oauthbearer_token_file
        token = token_of(oauthbearer_file_token(self._settings), None, now_ms=now_ms, origin=str(path))
        if token.expires_ms <= now_ms:
            ago_s = (now_ms - token.expires_ms) / 1000
            raise ClusterUnreachable(f"the token of {path} expired {ago_s:,.0f} s ago: write a new one to the file")
        return token


class KeptTokens:
    """Keeps a token for most of its life, then fetches the next; goes on with the old one while that fails."""

    def __init__(self, fetch: Callable[[], Token], now_ms: Callable[[], int] = clocks.now_ms) -> None:
        self._fetch = fetch
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._failure: tuple[int, str] | None = None
        self._log_failure = with_log_fields(_log_failure)

    def token(self) -> Token:
        with self._lock:
            now_ms = self._now_ms()
            # A token of the future was obtained before the clock was set back: it ends before its time is there.
            if self._token is None or not self._token.obtained_ms <= now_ms < self._token.renewal_ms:
                self._renew(now_ms)
            if self._token is not None and now_ms < self._token.expires_ms:
                return self._token
            raise ClusterUnreachable(self._failure[1] if self._failure else "the token just fetched has expired")

    def _renew(self, now_ms: int) -> None:
        if self._failure is not None and 0 <= now_ms - self._failure[0] < PAUSE_AFTER_FAILURE_MS:
            return
        try:
            self._token, self._failure = self._fetch(), None
        except (ClusterUnreachable, UsageProblem) as error:  # a file of the endpoint's may be written just now
            if self._token is None and isinstance(error, UsageProblem):
                raise
            # From its end: an endpoint that hangs would else be asked without a pause.
            self._failure = self._now_ms(), str(error)
            if self._token is not None:
                self._log_failure(error, self._token, now_ms)


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Fetches a token by client credentials, as Kafka's `OAuthBearerLoginCallbackHandler` does."""

    settings: KafkaSettings
    now_ms: Callable[[], int] = clocks.now_ms
    transport: httpx.BaseTransport | None = None
    """None: the network."""

    def fetch(self) -> Token:
        """Raises ClusterUnreachable, UsageProblem. A refusal is not repeated; an endpoint that fails is asked again."""
        limit_s = self.settings.request_timeout_ms / 1000 / ATTEMPTS_MAX
        secret = oauthbearer_client_secret(self.settings)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                status, body = self._ask(secret, limit_s)
            except HTTP_ERRORS as error:
                problem = f"no token from {self._url}: {type(error).__name__}"
            else:
                if status == httpx.codes.OK:
                    return self._token(body)
                problem = f"no token from {self._url}: it answers {status}{_error_code(body)}"
                if status < httpx.codes.INTERNAL_SERVER_ERROR and status != httpx.codes.TOO_MANY_REQUESTS:
                    client = self.settings.sasl_oauthbearer_client_id
                    raise ClusterUnreachable(f"{problem}: are client id {client}, its secret and the scope right?")
            if attempt < ATTEMPTS_MAX:
                time.sleep(ATTEMPT_PAUSE_S)
        raise ClusterUnreachable(problem)

    @property
    def _url(self) -> str:
        """URL of the token endpoint as it may be shown."""
        return without_user_info(self.settings.sasl_oauthbearer_token_endpoint_url or "")

    def _ask(self, secret: str, limit_s: float) -> tuple[int, bytes]:
        """Returns status and body of the endpoint's answer; raises httpx's errors, OSError."""
        settings = self.settings
        form = {"grant_type": "client_credentials"}
        if settings.sasl_oauthbearer_scope:
            form["scope"] = settings.sasl_oauthbearer_scope
        url = settings.sasl_oauthbearer_token_endpoint_url or ""
        login = (settings.sasl_oauthbearer_client_id or "", secret)
        headers = {"Accept": "application/json", "Cache-Control": "no-cache"}
        deadline_s, body = time.monotonic() + limit_s, bytearray()
        with (
            httpx.Client(timeout=limit_s, transport=self.transport, verify=self._verification()) as client,
            client.stream("POST", url, data=form, auth=login, headers=headers) as answer,
        ):
            for part in answer.iter_bytes():
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    raise httpx.DecodingError("the answer is too large")
                # The client's own limit starts again with each byte that arrives.
                if time.monotonic() > deadline_s:
                    raise httpx.ReadTimeout("the answer takes too long")
        return answer.status_code, bytes(body)

    def _verification(self) -> ssl.SSLContext | bool:
        url, file = self.settings.sasl_oauthbearer_token_endpoint_url or "", self.settings.sasl_oauthbearer_ca_file
        if file is None or not url.startswith("https:"):
            return verification(url)
        try:
            return ssl.create_default_context(cafile=str(file))
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise UsageProblem(f"kafka.sasl_oauthbearer_ca_file: {file} can't be read: {error}") from None

    def _token(self, body: bytes) -> Token:
        try:
            answer = json.loads(body)
            value, life_s = answer["access_token"], answer.get("expires_in")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ClusterUnreachable(f"the answer of {self._url} has no access_token") from None
        life_ms = None
        with suppress(ValueError, TypeError, OverflowError):
            life_ms = int(float(life_s) * 1000)
        return token_of(value, life_ms, now_ms=self.now_ms(), origin=self._url)


def token_of(value: object, life_ms: int | None, *, now_ms: int, origin: str) -> Token:
    """A token with its expiry, also by the claim `exp` of a JWT; raises ClusterUnreachable, which names `origin`."""
    if not isinstance(value, str) or not TOKEN.fullmatch(value):
        raise ClusterUnreachable(f"{origin} gives what is no token: a bearer's token has letters, digits and ._~+/=-")
    ends = [now_ms + life_ms] if life_ms is not None else []
    claim_ms = _expiry_claim_ms(value)
    if claim_ms is not None:
        ends.append(claim_ms)
    return Token(value, now_ms, min(ends, default=now_ms + LIFE_ASSUMED_MS))


def _log_failure(error: Exception, old: Token, now_ms: int) -> None:
    log.warning("token_not_renewed", error=str(error), expires_in_ms=max(0, old.expires_ms - now_ms))


def _expiry_claim_ms(value: str) -> int | None:
    """The claim `exp` of a JWT, unverified: brokers verify it."""
    parts = value.split(".")
    if len(parts) != 3:
        return None
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return int(float(claims["exp"]) * 1000)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _error_code(body: bytes) -> str:
    """The error that an endpoint names (RFC 6749, 5.2), never its free text, which may repeat the request."""
    try:
        code = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f" ({code})" if isinstance(code, str) and ERROR_CODE.fullmatch(code) else ""


class MskSigner:
    """Signs a token with the credentials that botocore has now; it renews temporary ones itself."""

    def __init__(self, settings: KafkaSettings, now_ms: Callable[[], int] = clocks.now_ms) -> None:
        """Raises SetUpIncomplete where botocore is missing, UsageProblem where the region is not known."""
        try:
            import botocore.session
        except ImportError:
            raise SetUpIncomplete(
                "kafka.sasl_mechanism AWS_MSK_IAM needs botocore: pip install --no-deps -r deploy/extras/msk.lock"
            ) from None
        self._now_ms = now_ms
        self._region = region_of(settings)
        self._session = botocore.session.Session(profile=settings.sasl_aws_msk_iam_profile)
        self._credentials: Any = None

    def fetch(self) -> Token:
        """A token signed now; raises ClusterUnreachable where there are no credentials."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            # Kept once they are there: botocore looks for them in up to ten places.
            self._credentials = self._credentials or self._session.get_credentials()
            if self._credentials is None:
                raise ClusterUnreachable(NO_CREDENTIALS)
            url = signed_url(self._credentials.get_frozen_credentials(), self._region)
        except (BotoCoreError, ClientError) as error:
            raise ClusterUnreachable(f"no AWS credentials: {' '.join(str(error).split())}") from None
        value = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
        now_ms = self._now_ms()
        return Token(value, now_ms, now_ms + MSK_LIFE_S * 1000)


def signed_url(credentials: Any, region: str) -> str:
    """The presigned request; `credentials` are botocore's, frozen. Raises botocore's errors."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest(method="GET", url=f"https://kafka.{region}.amazonaws.com/", params={"Action": MSK_ACTION})
    SigV4QueryAuth(credentials, MSK_SERVICE, region, expires=MSK_LIFE_S).add_auth(request)
    # Behind the signature, as AWS's signer adds it: brokers log it, and do not sign it.
    return f"{request.url}&User-Agent={MSK_USER_AGENT}"


def region_of(settings: KafkaSettings) -> str:
    """The region that the settings name, or the brokers' own names; raises UsageProblem.

    >>> server = "b-1.main.x1.c2.kafka.eu-west-1.amazonaws.com:9098"
    >>> region_of(KafkaSettings(bootstrap_servers=[server]))
    'eu-west-1'
    """
    if settings.sasl_aws_msk_iam_region is not None:
        return settings.sasl_aws_msk_iam_region
    regions = {match[1] for server in settings.bootstrap_servers if (match := REGION_OF_BROKER.search(server))}
    if len(regions) != 1:
        raise UsageProblem(
            "kafka.sasl_aws_msk_iam_region: missing, and the names in kafka.bootstrap_servers show none: "
            "set it to the region of the cluster, such as eu-west-1"
        )
    return regions.pop()
