"""PySpark's daemon of Python workers, with PySpark from where this driver has it.

Spark puts an archive of PySpark's sources before all else on the workers' path. Python compiles anew what it reads from
an archive: half a second for the daemon, and some for each worker. What is installed beside us is compiled already.
`spark.python.daemon.module` names this module where the workers run beside the driver, with its Python.
"""

import sys

sys.path[:] = [place for place in sys.path if not place.endswith("/pyspark.zip")]

from pyspark.daemon import manager  # noqa: E402

if __name__ == "__main__":
    manager()
