-- What did the planner see? With time travel: rebalancer sql --at 2026-11-21T14:05:00 "..."
WITH newest AS (
    SELECT kafka_cluster, max(window_start) AS window_start FROM broker_load WHERE is_final GROUP BY kafka_cluster
)
SELECT b.kafka_cluster, b.window_start, b.broker, b.bytes_in_per_sec, b.replication_bytes_in_per_sec,
       b.log_dir_used_bytes, b.sample_count
FROM broker_load AS b
JOIN newest ON newest.kafka_cluster = b.kafka_cluster AND newest.window_start = b.window_start
WHERE b.is_final
ORDER BY b.kafka_cluster, b.broker
