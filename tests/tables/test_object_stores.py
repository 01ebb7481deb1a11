"""What the settings of an object store refuse: each slip that would send secrets, or lose a commit."""

import pytest

from streaming.errors import UsageProblem
from streaming.settings import StorageSettings
from streaming.tables.object_stores import s3_options, storage_options, use_object_store


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


def test_a_store_that_is_refused_leaves_the_one_of_before() -> None:
    """As of settings that are read again: those that are refused change nothing for a role that runs."""
    own = StorageSettings(tables="s3://bucket/tables", s3_endpoint="https://store.example")
    try:
        use_object_store(own, environment={})
        before = storage_options(own.tables)
        assert before is not None
        assert before["aws_endpoint_url"] == "https://store.example"
        with pytest.raises(UsageProblem, match="s3_allow_http"):
            use_object_store(own.model_copy(update={"s3_endpoint": "http://store.example"}), environment={})
        assert storage_options(own.tables) == before
        use_object_store(own.model_copy(update={"s3_endpoint": None}), environment={})
        now = storage_options(own.tables)
        assert now is not None
        assert "aws_endpoint_url" not in now
    finally:
        use_object_store(StorageSettings())
    assert storage_options(own.tables) is None
