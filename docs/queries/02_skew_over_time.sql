-- How uneven was the load, window by window? 1 is even; the trigger reads the same figure.
-- Where some brokers of a window know their replication traffic, one that doesn't has no known load.
WITH load AS (
    SELECT kafka_cluster, window_start, bytes_in_per_sec, replication_bytes_in_per_sec,
           max(replication_bytes_in_per_sec) OVER (PARTITION BY kafka_cluster, window_start) IS NULL AS clients_alone
    FROM broker_load
    WHERE is_final
), known AS (
    SELECT kafka_cluster, window_start,
           bytes_in_per_sec + CASE WHEN clients_alone THEN 0 ELSE replication_bytes_in_per_sec END AS bytes
    FROM load
)
SELECT kafka_cluster, window_start, max(bytes) / avg(bytes) AS max_over_mean, count(bytes) AS brokers_reporting
FROM known
GROUP BY kafka_cluster, window_start
HAVING avg(bytes) > 0
ORDER BY kafka_cluster, window_start
