-- What did the planner see? With time travel: rebalancer sql --at 2026-11-21T14:05:00 "..."
SELECT window_start, broker, bytes_in_per_sec, replication_bytes_in_per_sec, log_dir_used_bytes, sample_count
FROM broker_load
WHERE is_final AND window_start = (SELECT max(window_start) FROM broker_load WHERE is_final)
ORDER BY broker
