"""Options of Spark for checkpoints on S3: from the same settings as delta-rs's, and never a secret."""

import pytest

from streaming.errors import UsageProblem
from streaming.pipeline.session import hadoop_options
from streaming.settings import StorageSettings

SECRETS = {"AWS_ACCESS_KEY_ID": "the-key", "AWS_SECRET_ACCESS_KEY": "the-secret", "AWS_SESSION_TOKEN": "the-token"}
PREFIX = "spark.hadoop.fs.s3a."


def test_a_session_without_checkpoints_on_s3_has_none() -> None:
    assert hadoop_options(StorageSettings(tables="s3://bucket/tables"), SECRETS) == {}


def test_credentials_are_left_to_awss_own_chain() -> None:
    options = hadoop_options(StorageSettings(checkpoints="s3://bucket/checkpoints"), SECRETS)
    assert options[f"{PREFIX}aws.credentials.provider"].endswith(".DefaultCredentialsProvider")
    assert not set(SECRETS.values()) & set(options.values())
    assert not {f"{PREFIX}endpoint", f"{PREFIX}endpoint.region"} & options.keys()


@pytest.mark.parametrize(
    ("set_to", "environment", "region"),
    [("eu-west-1", {"AWS_REGION": "us-east-2"}, "eu-west-1"), (None, {"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2")],
)
def test_region_and_endpoint_are_those_of_delta_rs(
    set_to: str | None, environment: dict[str, str], region: str
) -> None:
    storage = StorageSettings(checkpoints="s3a://bucket/checkpoints", s3_region=set_to)
    options = hadoop_options(storage, environment | {"AWS_ENDPOINT_URL": "https://store.example:9000"})
    assert options[f"{PREFIX}endpoint.region"] == region
    assert options[f"{PREFIX}endpoint"] == "https://store.example:9000"
    assert options[f"{PREFIX}path.style.access"] == "true"


def test_an_unencrypted_store_elsewhere_is_refused() -> None:
    with pytest.raises(UsageProblem, match="unencrypted"):
        hadoop_options(StorageSettings(checkpoints="s3://b/c", s3_endpoint="http://store.example"), {})
