-- Which brokers anywhere are above 80 % of their capacity in the newest window?
-- broker_capacity has planner.capacities of the settings; without a capacity for disks, what brokers report counts.
-- Where replication is unknown, clients alone count.
WITH newest AS (
    SELECT kafka_cluster, max(window_end) AS window_end FROM broker_load WHERE is_final GROUP BY kafka_cluster
), load AS (
    SELECT b.kafka_cluster, b.window_end, b.broker,
           b.bytes_in_per_sec + coalesce(b.replication_bytes_in_per_sec, 0) AS bytes_in,
           b.bytes_out_per_sec + coalesce(b.replication_bytes_out_per_sec, 0) AS bytes_out,
           b.log_dir_used_bytes AS disk,
           c.bytes_in_per_sec AS bytes_in_capacity,
           c.bytes_out_per_sec AS bytes_out_capacity,
           coalesce(c.disk_bytes, b.log_dir_used_bytes + b.log_dir_usable_bytes) AS disk_capacity
    FROM broker_load AS b
    JOIN newest AS n ON n.kafka_cluster = b.kafka_cluster AND n.window_end = b.window_end
    LEFT JOIN broker_capacity AS c ON c.kafka_cluster = b.kafka_cluster AND c.broker = b.broker
    WHERE b.is_final
), shares AS (
    SELECT kafka_cluster, window_end, broker, 'bytes_in' AS resource, bytes_in / bytes_in_capacity AS share FROM load
    UNION ALL
    SELECT kafka_cluster, window_end, broker, 'bytes_out' AS resource, bytes_out / bytes_out_capacity AS share FROM load
    UNION ALL
    SELECT kafka_cluster, window_end, broker, 'disk' AS resource, disk / disk_capacity AS share FROM load
)
SELECT kafka_cluster, broker, resource, share, window_end
FROM shares
WHERE share > 0.8
ORDER BY share DESC, kafka_cluster, broker, resource
