-- Which partitions are the heaviest, and what share of all client writes of its cluster is each?
WITH load AS (
    SELECT kafka_cluster, topic, partition, avg(bytes_in_per_sec) AS bytes_in_per_sec
    FROM partition_load
    WHERE role = 'leader' AND is_final
    GROUP BY kafka_cluster, topic, partition
)
SELECT kafka_cluster, topic, partition, bytes_in_per_sec,
       bytes_in_per_sec / sum(bytes_in_per_sec) OVER (PARTITION BY kafka_cluster) AS share
FROM load
ORDER BY bytes_in_per_sec DESC, kafka_cluster, topic, partition
LIMIT 20
