"""Tables of the pipeline's own: what it rejected, and the figures of its batches."""

from streaming.contract.columns import Column, ColumnType, Table, integer, long, text, timestamp

REJECTED_RECORD = Table(
    "rejected_record",
    "Records of the input topics that did not fit, with the reason and the raw bytes",
    ("source_topic", "source_partition", "source_offset"),
    "rejected_at",
    (
        text("source_topic", "Topic the record was read from", nullable=False),
        integer("source_partition", "Partition the record was read from", nullable=False),
        long("source_offset", "Offset of the record", nullable=False),
        timestamp("record_time", "Kafka's timestamp of the record, UTC"),
        text("reason", "Reason of the rejection, one word of a fixed list", nullable=False),
        text("field", "The field at fault; null where the whole record is"),
        Column("key", ColumnType.BINARY, "Record key, raw bytes (cut at 1 MiB)"),
        Column("value", ColumnType.BINARY, "Record value, raw bytes (cut at 1 MiB)"),
        timestamp("rejected_at", "When the record was rejected, UTC", nullable=False),
        long("records_not_kept", "How many records this row counts without storing them; null for one stored record"),
    ),
)

PIPELINE_BATCH = Table(
    "pipeline_batch",
    "Heartbeat and figures of the streaming queries, one row per micro-batch that is kept",
    ("query_name", "query_id", "batch_id"),
    "finished_at",
    (
        text("query_name", "Streaming query: byte_rate, consumer_lag or rejects", nullable=False),
        text("query_id", "Id of the query (checkpoint)", nullable=False),
        long("batch_id", "Micro-batch", nullable=False),
        timestamp("finished_at", "When this row was written, UTC; a batch that lasts has several rows", nullable=False),
        long("duration_ms", "Duration of the batch, ms", nullable=False),
        long("input_rows", "Records read in the batch", nullable=False),
        long("batches_total", "Batches since the query's first start that this process has seen", nullable=False),
        long("input_rows_total", "Records since this process started", nullable=False),
        long("rejected_rows_total", "Records rejected since this process started", nullable=False),
        long("late_rows_total", "Records behind the watermark since this process started", nullable=False),
        timestamp("watermark", "Watermark of the query, UTC; null before the first event"),
        long("source_lag_records", "Records in the topic not yet read"),
        long("state_rows", "Rows in the state store"),
        long("state_memory_bytes", "Memory of the state store, bytes"),
        long("trigger_interval_ms", "Trigger interval from the settings, ms", nullable=False),
        text("phases_json", "Duration of each phase of the batch, JSON object of ms"),
        text("upkeep_failing_json", "Jobs of the pipeline's upkeep whose newest run failed, JSON array of table: job"),
    ),
)
