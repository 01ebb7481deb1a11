-- Which clusters have more capacity than they use? The fullest broker in its highest hour of the last 28 days.
-- peak_share is that of the resource that is nearest to its capacity; resources without a capacity are left out.
WITH load AS (
    SELECT b.kafka_cluster, b.broker,
           max(b.bytes_in_per_sec + coalesce(b.replication_bytes_in_per_sec, 0)) AS bytes_in,
           max(b.bytes_out_per_sec + coalesce(b.replication_bytes_out_per_sec, 0)) AS bytes_out,
           max(CAST(b.log_dir_used_bytes AS double) / (b.log_dir_used_bytes + b.log_dir_usable_bytes)) AS disk_share,
           max(b.log_dir_used_bytes) AS disk
    FROM broker_load_hourly AS b
    WHERE b.period_start >= (SELECT max(period_end) FROM broker_load_hourly) - INTERVAL '28' DAY
    GROUP BY b.kafka_cluster, b.broker
), shares AS (
    SELECT l.kafka_cluster, l.broker, 'bytes_in' AS resource, l.bytes_in / c.bytes_in_per_sec AS share
    FROM load AS l JOIN broker_capacity AS c ON c.kafka_cluster = l.kafka_cluster AND c.broker = l.broker
    UNION ALL
    SELECT l.kafka_cluster, l.broker, 'bytes_out' AS resource, l.bytes_out / c.bytes_out_per_sec AS share
    FROM load AS l JOIN broker_capacity AS c ON c.kafka_cluster = l.kafka_cluster AND c.broker = l.broker
    UNION ALL
    SELECT l.kafka_cluster, l.broker, 'disk' AS resource, coalesce(l.disk / c.disk_bytes, l.disk_share) AS share
    FROM load AS l LEFT JOIN broker_capacity AS c ON c.kafka_cluster = l.kafka_cluster AND c.broker = l.broker
), ranked AS (
    SELECT kafka_cluster, broker, resource, share,
           row_number() OVER (PARTITION BY kafka_cluster ORDER BY share DESC, resource, broker) AS place
    FROM shares
    WHERE share IS NOT NULL
)
SELECT kafka_cluster, resource, broker, share AS peak_share
FROM ranked
WHERE place = 1
ORDER BY peak_share, kafka_cluster
