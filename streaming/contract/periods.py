"""Columns that all window tables share, and those of all tables by the hour and by the day."""

from streaming.contract.columns import flag, long, text, timestamp

WINDOW = (
    timestamp("window_start", "Start of the tumbling event-time window, UTC, inclusive", nullable=False),
    timestamp("window_end", "End of the window, UTC, exclusive", nullable=False),
)
WINDOW_AUDIT = (
    long("sample_count", "Samples that fell into the window", nullable=False),
    long("first_event_time_ms", "Event time of the oldest sample in the window, ms since 1970 UTC", nullable=False),
    long("last_event_time_ms", "Event time of the newest sample in the window, ms since 1970 UTC", nullable=False),
    flag("is_final", "True once the watermark has passed the window: the row will not change again", nullable=False),
    timestamp("updated_at", "When this row was last written, UTC", nullable=False),
    long("batch_id", "Micro-batch that last wrote this row", nullable=False),
    text("query_id", "Id of the streaming query (checkpoint) that last wrote this row", nullable=False),
)
PERIOD = (
    timestamp("period_start", "Start of the hour or day, UTC, inclusive", nullable=False),
    timestamp("period_end", "End of the hour or day, UTC, exclusive", nullable=False),
)
PERIOD_AUDIT = (
    long("window_count", "Windows that the row rests on", nullable=False),
    timestamp("updated_at", "When this row was written, UTC", nullable=False),
)
