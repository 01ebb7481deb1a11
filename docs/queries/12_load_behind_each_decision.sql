-- Which broker was the heaviest in the newest window of each decision, and how far above the mean was it?
WITH load AS (
    SELECT kafka_cluster, window_end, broker, bytes_in_per_sec,
           avg(bytes_in_per_sec) OVER (PARTITION BY kafka_cluster, window_end) AS mean,
           row_number() OVER (PARTITION BY kafka_cluster, window_end ORDER BY bytes_in_per_sec DESC, broker) AS place
    FROM broker_load
    WHERE is_final AND bytes_in_per_sec IS NOT NULL
)
SELECT d.kafka_cluster, d.decided_at, d.verdict, d.reason, d.plan_id, load.broker AS heaviest_broker,
       load.bytes_in_per_sec, load.bytes_in_per_sec / load.mean AS over_mean
FROM decision AS d
JOIN load ON load.kafka_cluster = d.kafka_cluster AND load.window_end = d.window_end
WHERE load.place = 1 AND load.mean > 0
ORDER BY d.kafka_cluster, d.decided_at DESC, d.decision_id
LIMIT 100
