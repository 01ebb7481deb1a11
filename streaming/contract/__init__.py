"""What others may rely on: the records of both topics and all tables, as plain data.

`rates` and `records` hold each field once, with its unit, meaning and range; the `*_tables` make their columns of them.
Spark (pipeline) and delta-rs (all others) build their own schema objects from these; the docs and the tests compare
with them. Table and column names are a contract: a change needs a version and a CHANGELOG line. The package knows
neither Spark nor Arrow nor Delta.
"""

from streaming.contract.columns import Column, ColumnType, Table
from streaming.contract.control_tables import (
    AUDIT,
    BROKER_INTENT,
    BROKER_RESTART,
    DECISION,
    EXECUTION,
    LEASE,
    LOAD_MEMORY,
    LOG_DIR,
    MOVEMENT,
    NOTIFICATION,
    PLAN,
    PREDICTION,
    RECURRING_LOAD,
    ROLL,
    ROLL_LEASE,
)
from streaming.contract.lag_tables import GROUP_EVENT, GROUP_LAG, GROUP_LAG_DAILY
from streaming.contract.load_tables import (
    BROKER_LOAD,
    BROKER_LOAD_DAILY,
    BROKER_LOAD_HOURLY,
    PARTITION_LOAD,
    PARTITION_LOAD_DAILY,
    PARTITION_LOAD_HOURLY,
)
from streaming.contract.pipeline_tables import PIPELINE_BATCH, REJECTED_RECORD
from streaming.contract.records import RECORD_VERSION

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        PARTITION_LOAD,
        BROKER_LOAD,
        GROUP_LAG,
        BROKER_LOAD_HOURLY,
        BROKER_LOAD_DAILY,
        PARTITION_LOAD_HOURLY,
        PARTITION_LOAD_DAILY,
        GROUP_LAG_DAILY,
        GROUP_EVENT,
        REJECTED_RECORD,
        PIPELINE_BATCH,
        DECISION,
        PLAN,
        MOVEMENT,
        EXECUTION,
        LEASE,
        BROKER_INTENT,
        ROLL,
        ROLL_LEASE,
        LOG_DIR,
        BROKER_RESTART,
        LOAD_MEMORY,
        RECURRING_LOAD,
        AUDIT,
        NOTIFICATION,
        PREDICTION,
    )
}
"""All tables by name."""

TABLE_FORMAT = 1
"""Format of the rows of all tables. A release refuses tables of a greater format. The format is raised with what an
older release would misread: another meaning or unit of a column, another type or key. A new column is none of these.
"""

__all__ = [
    "AUDIT",
    "BROKER_INTENT",
    "BROKER_LOAD",
    "BROKER_LOAD_DAILY",
    "BROKER_LOAD_HOURLY",
    "BROKER_RESTART",
    "DECISION",
    "EXECUTION",
    "GROUP_EVENT",
    "GROUP_LAG",
    "GROUP_LAG_DAILY",
    "LEASE",
    "LOAD_MEMORY",
    "LOG_DIR",
    "MOVEMENT",
    "NOTIFICATION",
    "PARTITION_LOAD",
    "PARTITION_LOAD_DAILY",
    "PARTITION_LOAD_HOURLY",
    "PIPELINE_BATCH",
    "PLAN",
    "PREDICTION",
    "RECORD_VERSION",
    "RECURRING_LOAD",
    "REJECTED_RECORD",
    "ROLL",
    "ROLL_LEASE",
    "TABLES",
    "TABLE_FORMAT",
    "Column",
    "ColumnType",
    "Table",
]
