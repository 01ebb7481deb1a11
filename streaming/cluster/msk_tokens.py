"""Tokens by which clients log in to AWS MSK: a request `kafka-cluster:Connect`, signed and never sent.

A token is the signed URL (AWS Signature Version 4, in the query) in base64, as AWS's own aws-msk-iam-sasl-signer makes
it; the brokers check the signature. Credentials and signature are botocore's, which is installed on request only.
"""

import base64
import re
from collections.abc import Callable
from typing import Any

from streaming.cluster.tokens import Token
from streaming.errors import ClusterUnreachable, SetUpIncomplete, UsageProblem
from streaming.runtime import clocks
from streaming.settings import KafkaSettings

LIFE_S = 900
"""The longest that brokers accept. botocore renews temporary credentials when they have so long to live."""
SERVICE = "kafka-cluster"
ACTION = "kafka-cluster:Connect"
USER_AGENT = "kafka-load-rebalancer"
REGION_OF_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:\d+$")
NO_CREDENTIALS = (
    "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name kafka.sasl_aws_msk_iam_profile, "
    "or run where AWS gives a role"
)


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
        return Token(value, now_ms, now_ms + LIFE_S * 1000)


def signed_url(credentials: Any, region: str) -> str:
    """The presigned request; `credentials` are botocore's, frozen. Raises botocore's errors."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest(method="GET", url=f"https://kafka.{region}.amazonaws.com/", params={"Action": ACTION})
    SigV4QueryAuth(credentials, SERVICE, region, expires=LIFE_S).add_auth(request)
    # Behind the signature, as AWS's signer adds it: brokers log it, and do not sign it.
    return f"{request.url}&User-Agent={USER_AGENT}"


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
