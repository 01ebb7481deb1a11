"""What the settings of an object store refuse: each slip that would send secrets, or lose a commit."""

import pytest

from streaming.errors import UsageProblem
from streaming.settings import StorageSettings
from streaming.tables.object_stores import s3_options, storage_options


def test_what_is_not_safe_is_refused_before_anything_is_sent() -> None:
    plain = StorageSettings(tables="s3://bucket/t")
    for name in ("AWS_S3_ALLOW_UNSAFE_RENAME", "AWS_S3_LOCKING_PROVIDER"):
        with pytest.raises(UsageProblem, match=f"environment {name} is set"):
            s3_options(plain, {name: "true"})
    with pytest.raises(UsageProblem, match=r"use https, or set storage\.s3_allow_http"):
        s3_options(plain, {"AWS_ENDPOINT_URL": "http://store.example:9000"})
    with pytest.raises(UsageProblem, match="holds a login"):
        s3_options(StorageSettings(tables="s3://key:secret@bucket/t"), {})
    with pytest.raises(UsageProblem, match="holds a login"):
        s3_options(StorageSettings(s3_endpoint="https://key:secret@store.example"), {})
    told = StorageSettings(tables=plain.tables, s3_endpoint="http://store.example:9000", s3_allow_http=True)
    assert s3_options(told, {})["allow_http"] == "true"
    assert s3_options(plain, {})["allow_http"] == "false"
    assert storage_options("data/tables") is None
