"""What must never be shown: the secrets of the settings, and text in which one may stand.

A secret is masked by the name that it stands under and by its value, wherever that occurs. Knows nothing of logs.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from streaming.errors import UsageProblem
from streaming.settings import KafkaSettings, Settings
from streaming.settings.notify import WebhookSettings
from streaming.settings.secret_names import SECRET_NAME

MASK = "**********"
VALUE_LENGTH_MIN = 4
"""A shorter value is masked by its name alone: it occurs in too many words."""

_ASSIGNMENT = re.compile(
    r"""(?P<name>[\w.-]*(?:password|passwd|secret|token|credential|jaas)[\w.-]*)
    (?P<sign>["']\s*:\s*|\s*=\s*)
    (?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&})\]]+)""",
    re.IGNORECASE | re.VERBOSE,
)
"""A name and its value in text: `'sasl_plain_password': 'x'`, `"token": "x"`, `password=x`."""
_USER_INFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/?#\"'<>]+@", re.IGNORECASE)
_TOKEN = re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*|\baHR0cHM6Ly9rYWZrYS[\w-]+|(?<=\bBearer )[\w.~+/=-]+")
"""A JWT, which begins with `{"` in base64; a token of AWS MSK, with `https://kafka`; any token of a bearer."""
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


class Masking:
    """Replaces secrets by asterisks in values of any type."""

    def __init__(self, secrets: frozenset[str] = frozenset()) -> None:
        self._secrets = frozenset[str]()
        self.add(secrets)

    def add(self, secrets: frozenset[str]) -> None:
        """Replaces these secrets, too."""
        self._secrets = secrets = self._secrets | secrets
        spellings = {form for secret in secrets for form in _spellings(secret) if len(form) >= VALUE_LENGTH_MIN}
        # The longest first: a secret may be the beginning of another.
        alternatives = "|".join(map(re.escape, sorted(spellings, key=lambda form: (-len(form), form))))
        self._values = re.compile(alternatives) if alternatives else None

    def text(self, text: str) -> str:
        """The text without secrets.

        >>> masking = Masking(frozenset({"hunter2"}))
        >>> masking.text("login of hunter2 failed; {'sasl_plain_password': 'other'} http://user:x@broker:9404/metrics")
        "login of ********** failed; {'sasl_plain_password': **********} http://**********@broker:9404/metrics"
        """
        if self._values is not None:
            text = self._values.sub(MASK, text)
        text = _ASSIGNMENT.sub(rf"\g<name>\g<sign>{MASK}", text)
        text = _TOKEN.sub(MASK, text)
        text = _PRIVATE_KEY.sub(rf"\g<1>{MASK}\g<2>", text)
        return _USER_INFO.sub(rf"\g<scheme>{MASK}@", text)

    def value(self, value: Any) -> Any:
        """The value without secrets: itself where it has none, else text, or a list or dict of masked values."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {key: self.named(str(key), inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        shown = value if isinstance(value, str) else repr(value)
        masked = self.text(shown)
        return value if masked == shown else masked

    def named(self, name: str, value: Any) -> Any:
        """The value that stands under `name`, masked whole where the name looks secret."""
        return MASK if SECRET_NAME.search(name) else self.value(value)


def without_user_info(url: str) -> str:
    """A URL as it may be shown.

    >>> without_user_info("http://reader:hunter2@broker-1:9404/metrics")
    'http://**********@broker-1:9404/metrics'
    >>> without_user_info("reader:hunter2@broker-1:9404")
    '**********@broker-1:9404'
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    end = min((place for place in map(rest.find, "/?#") if place >= 0), default=len(rest))
    user_info, sign, host = rest[:end].rpartition("@")
    return f"{scheme}{separator}{MASK if user_info else ''}{sign}{host}{rest[end:]}"


def secrets_of(settings: Settings) -> frozenset[str]:
    """Every secret that the settings hold, name (the password's file) or carry inside a URL."""
    secrets = set(_secrets_in(settings))
    for read in (sasl_password, oauthbearer_client_secret, oauthbearer_file_token):
        with suppress(UsageProblem):  # whoever connects reports a file that can't be read
            secrets.add(read(settings.kafka))
    collect = settings.collect
    for file in (collect.prometheus_password_file, collect.prometheus_bearer_token_file):
        with suppress(UsageProblem):
            secrets |= {first_line(file, "collect")} if file is not None else set()
    client_secret_file = settings.serve.oidc_client_secret_file
    with suppress(UsageProblem):
        secrets |= {first_line(client_secret_file, "serve")} if client_secret_file is not None else set()
    for name, webhook in settings.notify.webhooks.items():
        with suppress(UsageProblem):
            secrets |= {webhook_key(webhook, name) or ""} - {""}
        with suppress(UsageProblem):
            secrets |= {webhook_url(webhook, name)} if webhook.url_file is not None else set()
    return frozenset(secrets)


def secrets_of_all(clusters: Iterable[Settings]) -> frozenset[str]:
    """Every secret that the settings of any of these clusters hold, as `secrets_of` finds them."""
    return frozenset(secret for settings in clusters for secret in secrets_of(settings))


def webhook_url(webhook: WebhookSettings, name: str) -> str:
    """Returns the URL to send to, from the settings or the first line of its file; raises UsageProblem."""
    if webhook.url_file is None:
        return str(webhook.url)
    return first_line(webhook.url_file, f"notify.webhooks.{name}.url_file").strip()


def webhook_key(webhook: WebhookSettings, name: str) -> str | None:
    """The key that signs, or None where nothing is signed; raises UsageProblem."""
    if webhook.secret_file is None:
        return None
    return first_line(webhook.secret_file, f"notify.webhooks.{name}.secret_file").strip()


def sasl_password(settings: KafkaSettings) -> str:
    """The password, from the settings or the first line of its file; raises UsageProblem."""
    return _secret(settings.sasl_password, settings.sasl_password_file, "sasl_password")


def oauthbearer_client_secret(settings: KafkaSettings) -> str:
    """The secret by which tokens are fetched, from the settings or the first line of its file; raises UsageProblem."""
    return _secret(
        settings.sasl_oauthbearer_client_secret,
        settings.sasl_oauthbearer_client_secret_file,
        "sasl_oauthbearer_client_secret",
    )


def oauthbearer_file_token(settings: KafkaSettings) -> str:
    """The token that its file holds now; raises UsageProblem."""
    return _secret(None, settings.sasl_oauthbearer_token_file, "sasl_oauthbearer_token").strip()


def first_line(file: Path, setting: str) -> str:
    """The secret in the file that a setting names; raises UsageProblem."""
    try:
        # With Windows' byte order mark, if there is one, no login would be right.
        line, *_ = file.read_text(encoding="utf-8-sig").splitlines() or [""]
    except (OSError, ValueError) as error:
        raise UsageProblem(f"{setting}: {file} can't be read: {error}") from None
    if not line.strip():
        # A shell writes that where its variable was not set; with an empty key anybody could sign.
        raise UsageProblem(f"{setting}: {file} can't be read: it is empty, or its first line is")
    return line


def _secret(value: SecretStr | None, file: Path | None, name: str) -> str:
    if value is not None:
        return value.get_secret_value()
    if file is None:
        raise UsageProblem(f"kafka.{name}: missing; set it in the environment or name kafka.{name}_file")
    return first_line(file, f"kafka.{name}_file")


def _secrets_in(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, str) and "@" in value and "://" in value:
        with suppress(ValueError):  # no URL after all
            password = urlsplit(value).password
            yield from (password, unquote(password)) if password else ()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets_in(getattr(value, name))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _secrets_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _secrets_in(inner)


def _spellings(secret: str) -> set[str]:
    """A secret as text, JSON, Python, a JAAS file and a URL write it."""
    quoted = secret.replace("\\", "\\\\").replace('"', '\\"')
    return {
        secret,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        repr(secret.encode())[2:-1],
        quoted,
        quote(secret, ""),
    }
