"""The pipeline's Spark session for tests, to which Delta is added, so that tests also read tables by Spark.

The product's session has no Delta. A process has one JVM, whose class path is that of the first session. Therefore all
tests that make a session in their own process make it here.
"""

import pytest
from pyspark.sql import SparkSession

from streaming.pipeline.session import build_session
from streaming.runtime.jars import jar_paths
from streaming.settings import PipelineSettings

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # 50 tasks, the default, to read the log of a table are too many for few cores.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def session_with_delta() -> SparkSession:
    """A session of the pipeline that can read Delta tables, too."""
    options = " ".join(f"--conf {name}={value}" for name, value in DELTA.items())
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_SUBMIT_ARGS", f"{options} pyspark-shell")
        return build_session(PipelineSettings(driver_memory="1g", extra_jars=jar_paths("delta")))
