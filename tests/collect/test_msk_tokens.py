"""Tokens for AWS MSK: their signature, renewal, and what is shown where there are no credentials. No AWS is asked."""

import base64
import datetime
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from streaming.cluster.clients import admin_client, librdkafka_options, spark_options
from streaming.cluster.record_sender import RecordSender
from streaming.cluster.tokens import MSK_LIFE_S, KeptTokens, MskSigner, region_of
from streaming.commands.check import _findings
from streaming.errors import ClusterUnreachable, SetUpIncomplete, UsageProblem
from streaming.runtime.secrets import Masking
from streaming.settings import KafkaSettings, Settings
from tests import sigv4

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # noqa: S105 - of AWS's documentation
SESSION_TOKEN = "session/token+="  # noqa: S105 - nobody's
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM",
    "bootstrap_servers": ["b-1.main.x1.c2.kafka.eu-west-1.amazonaws.com:9098"],
}  # fmt: skip
CANONICAL_REQUEST = """GET
/
Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2F\
eu-west-1%2Fkafka-cluster%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=900&\
X-Amz-Security-Token=session%2Ftoken%2B%3D&X-Amz-SignedHeaders=host
host:kafka.eu-west-1.amazonaws.com

host
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"""
"""Of a token with these credentials at 2013-05-24, by the documentation; the last line is the hash of no body."""


class Clock:
    def __init__(self) -> None:
        self.ms = 1_369_353_600_000

    def __call__(self) -> int:
        return self.ms


def settings_of(**changes: Any) -> KafkaSettings:
    return KafkaSettings.model_validate({**LOGIN, **changes})


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """AWS's own files, empty, and nothing of AWS in the environment."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "DEFAULT_PROFILE", "ROLE_ARN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_botocore()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION_TOKEN)


def needs_botocore() -> None:
    pytest.importorskip("botocore", reason="botocore is not installed: deploy/extras/msk.lock")


def url_of(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def test_the_oracle_signs_as_awss_documentation_does() -> None:
    """The presigned request of "Authenticating Requests: Using Query Parameters" in the documentation of S3."""
    canonical_request = (
        "GET\n/test.txt\nX-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1"
        "%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\n"
        "host:examplebucket.s3.amazonaws.com\n\nhost\nUNSIGNED-PAYLOAD"
    )
    signature = sigv4.signature(
        canonical_request, secret_key=SECRET_KEY, time="20130524T000000Z", region="us-east-1", service="s3"
    )
    assert signature == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


@pytest.mark.long
@pytest.mark.usefixtures("credentials")
def test_a_token_is_the_signed_request_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.auth

    fixed = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: fixed)
    clock = Clock()
    token = MskSigner(settings_of(), clock).fetch()
    assert (token.obtained_ms, token.expires_ms) == (clock.ms, clock.ms + MSK_LIFE_S * 1000)
    url = urlsplit(url_of(token.value))
    fields = dict(parse_qsl(url.query))
    expected = sigv4.signature(
        CANONICAL_REQUEST, secret_key=SECRET_KEY, time="20130524T000000Z", region="eu-west-1", service="kafka-cluster"
    )
    assert fields.pop("X-Amz-Signature") == expected
    assert fields.pop("User-Agent") == "kafka-load-rebalancer"
    assert dict(parse_qsl(CANONICAL_REQUEST.splitlines()[2])) == fields
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.eu-west-1.amazonaws.com", "/")


@pytest.mark.usefixtures("credentials")
def test_a_token_is_signed_anew_before_it_ends_with_the_credentials_of_then(aws: Path) -> None:
    clock = Clock()
    source = KeptTokens(MskSigner(settings_of(), clock).fetch, clock)
    first = source.token()
    clock.ms += MSK_LIFE_S * 800 - 1
    assert source.token() is first
    clock.ms += 1
    second = source.token()
    assert second.expires_ms == clock.ms + MSK_LIFE_S * 1000 > first.expires_ms


@pytest.mark.usefixtures("credentials")
def test_both_python_clients_show_it_as_a_bearers_token() -> None:
    options = librdkafka_options(settings_of())
    assert (options["sasl.mechanism"], options["security.protocol"]) == ("OAUTHBEARER", "SASL_SSL")
    callback = options["oauth_cb"]
    assert callable(callback)
    value, _expires_s = callback("")
    assert "Action=kafka-cluster%3AConnect" in url_of(value)
    assert Masking().text(f"refused: {value}.") == "refused: **********."


@pytest.mark.parametrize(
    ("changes", "environment", "message"),
    [
        ({}, {}, "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name kafka.sasl_aws_msk_iam_"),
        ({"sasl_aws_msk_iam_profile": "gone"}, {}, "no AWS credentials: The config profile (gone) could not be found"),
        ({}, {"AWS_ACCESS_KEY_ID": ACCESS_KEY}, "no AWS credentials: Partial credentials found in env, missing: "),
    ],
)
def test_without_credentials_no_broker_is_asked(
    changes: dict[str, str], environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_botocore()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for connect in (admin_client, RecordSender):
        with pytest.raises(ClusterUnreachable) as caught:
            connect(settings_of(**changes))
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)


def test_a_profile_of_awss_files_gives_the_credentials(aws: Path) -> None:
    needs_botocore()
    (aws / "credentials").write_text(f"[ops]\naws_access_key_id = OPS\naws_secret_access_key = {SECRET_KEY}\n")
    token = MskSigner(settings_of(sasl_aws_msk_iam_profile="ops")).fetch()
    assert "X-Amz-Credential=OPS%2F" in url_of(token.value)


def test_without_botocore_the_line_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(SetUpIncomplete, match=r"needs botocore: pip install --no-deps -r deploy/extras/msk\.lock"):
        admin_client(settings_of())


@pytest.mark.parametrize(
    ("server", "region"),
    [
        ("b-1.main.x1.c2.kafka.eu-west-1.amazonaws.com:9098", "eu-west-1"),
        ("boot-a1.c3.kafka-serverless.us-east-2.amazonaws.com:9098", "us-east-2"),
        ("b-1.main.x1.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("kafka.example.org:9098", None),
    ],
)
def test_the_region_is_that_of_the_brokers_names(server: str, region: str | None) -> None:
    named = settings_of(bootstrap_servers=["kafka.example.org:1"], sasl_aws_msk_iam_region="us-gov-west-1")
    assert region_of(named) == "us-gov-west-1"
    if region is not None:
        assert region_of(settings_of(bootstrap_servers=[server, "other.example.org:1"])) == region
        return
    with pytest.raises(UsageProblem, match=r"kafka\.sasl_aws_msk_iam_region: missing"):
        region_of(settings_of(bootstrap_servers=[server]))


def test_spark_gets_the_mechanism_of_awss_jar() -> None:
    package = "software.amazon.msk.auth.iam"
    assert spark_options(settings_of(sasl_aws_msk_iam_profile='o"ps')) == {
        "bootstrap.servers": LOGIN["bootstrap_servers"][0],
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f'{package}.IAMLoginModule required awsProfileName="o\\"ps";',
        "sasl.client.callback.handler.class": f"{package}.IAMClientCallbackHandler",
    }


def test_check_names_the_jar_that_spark_needs() -> None:
    finding = next(
        row for row in _findings(Settings(kafka=settings_of(request_timeout_ms=1)), ()) if row.name == "jars"
    )
    assert not finding.passed
    assert finding.detail.endswith("aws-msk-iam-auth jar: name it in pipeline.extra_jars")
