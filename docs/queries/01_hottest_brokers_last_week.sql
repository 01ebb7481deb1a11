-- Which brokers took most client writes in the last seven days?
SELECT kafka_cluster,
       broker,
       avg(bytes_in_per_sec) / 1e6 AS mean_mb_in_per_sec,
       max(bytes_in_per_sec_max) / 1e6 AS peak_mb_in_per_sec
FROM broker_load
WHERE is_final AND window_start >= (SELECT max(window_end) FROM broker_load) - INTERVAL '7' DAY
GROUP BY kafka_cluster, broker
ORDER BY mean_mb_in_per_sec DESC, kafka_cluster, broker
LIMIT 10
