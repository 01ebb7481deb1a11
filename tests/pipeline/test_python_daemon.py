"""Python workers beside the driver use the PySpark that it has."""

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.test_windows import session

pytestmark = pytest.mark.spark

__all__ = ["session"]  # the fixture


def test_workers_take_pyspark_from_where_the_driver_has_it(session: SparkSession) -> None:
    """What they would find first are sources in an archive, which Python compiles anew at each start."""

    def place(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    assert session.sparkContext.parallelize([0], 1).map(place).collect() == [pyspark.__file__]
