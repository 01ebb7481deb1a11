"""AWS Signature Version 4 from its documentation, as an oracle: a canonical request in, its signature out."""

import hashlib
import hmac


def signature(canonical_request: str, *, secret_key: str, time: str, region: str, service: str) -> str:
    """The signature, in hex; `time` is like 20130524T000000Z."""
    day = time[:8]
    digest = hashlib.sha256(canonical_request.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{time}\n{day}/{region}/{service}/aws4_request\n{digest}"
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex()
