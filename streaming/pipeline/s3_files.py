"""Checkpoints on S3: the options of Hadoop's S3A, from the settings and variables that delta-rs goes by.

Credentials are none of them: AWS's own chain reads them from the environment, or from the files that it names.
"""

from collections.abc import Mapping

from streaming.settings import StorageSettings
from streaming.tables.object_stores import S3_SCHEMES, s3_options
from streaming.tables.places import scheme_of

REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
BOUNDS = {
    # Hadoop's own: a store that answers 503 is asked 20 times, at intervals that double up to hours.
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "6",
    "fs.s3a.retry.interval": "500ms",
    "fs.s3a.retry.throttle.limit": "6",
    "fs.s3a.retry.throttle.interval": "500ms",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.timeout": "20s",
    "fs.s3a.connection.request.timeout": "60s",
}
FILE_SYSTEM = {
    # `s3://`, as delta-rs names it; Hadoop knows `s3a://` by itself.
    "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
}


def needs_s3_files(storage: StorageSettings) -> bool:
    """Whether Spark needs a file system for S3: for checkpoints alone, as tables there are written without Spark."""
    return scheme_of(storage.checkpoints) in S3_SCHEMES


def hadoop_options(storage: StorageSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Options of a session; empty where no checkpoints lie on S3. Raises UsageProblem as `s3_options` does.

    >>> storage = StorageSettings(checkpoints="s3://b/checkpoints", s3_endpoint="http://127.0.0.1:9000")
    >>> hadoop_options(storage, {"AWS_REGION": "eu-central-1"})["spark.hadoop.fs.s3a.endpoint.region"]
    'eu-central-1'
    """
    if not needs_s3_files(storage):
        return {}
    options = FILE_SYSTEM | BOUNDS
    endpoint = s3_options(storage, environment).get("aws_endpoint_url")
    if endpoint is not None:  # not AWS's own: a store without a host name for each bucket
        options |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    region = storage.s3_region or next((environment[name] for name in REGIONS if environment.get(name)), None)
    if region is not None:
        options["fs.s3a.endpoint.region"] = region
    return {f"spark.hadoop.{name}": value for name, value in options.items()}
