"""The options by which a session uses the archive of Spark's classes (`streaming.runtime.class_archive`)."""

from streaming.runtime import class_archive
from streaming.runtime.jars import class_path

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def driver_options(master: str) -> dict[str, str]:
    """Spark's options by which the driver of a local master has our jars on its class path, and uses the archive if
    there is one; empty for other masters, whose executors get the jars from the driver. Raises SetUpIncomplete.
    """
    if not master.startswith("local") or master.startswith("local-cluster"):
        return {}
    spark_options = {"spark.driver.extraClassPath": class_path("spark")}
    java_options = class_archive.options(class_archive.spark_archive_path())
    if java_options:
        spark_options[JAVA_OPTIONS] = " ".join(java_options)
    return spark_options
