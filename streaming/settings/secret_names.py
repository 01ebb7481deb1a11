"""Which settings hold a secret, by their names."""

import re

SECRET_NAME = re.compile(r"password|passwd|secret|token|credential|jaas", re.IGNORECASE)
_WEBHOOKS = re.compile(r"notify(\.webhooks(\..+)?)?")
_NO_SECRET_OF_WEBHOOKS = re.compile(r"\.(format|kinds(\.\d+)?|\w+_file)$")


def may_hold_secret(key: str) -> bool:
    """Whether what stands at this dotted key, or is meant to stand below it, must not be shown.

    The address of a webhook is its login, so it counts.

    >>> [may_hold_secret(key) for key in ("kafka.sasl_password", "notify.webhooks.ops.url", "serve.port")]
    [True, True, False]
    """
    return bool(SECRET_NAME.search(key)) or is_webhook_address(key)


def is_webhook_address(key: str) -> bool:
    """Whether the address of a webhook stands at this dotted key, or is meant to stand below it."""
    return bool(_WEBHOOKS.fullmatch(key)) and not _NO_SECRET_OF_WEBHOOKS.search(key)
