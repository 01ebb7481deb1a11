-- Which partitions are the heaviest, and what share of all client writes is each?
WITH load AS (
    SELECT topic, partition, avg(bytes_in_per_sec) AS bytes_in_per_sec
    FROM partition_load
    WHERE role = 'leader'
    GROUP BY topic, partition
)
SELECT topic, partition, bytes_in_per_sec, bytes_in_per_sec / (SELECT sum(bytes_in_per_sec) FROM load) AS share
FROM load
ORDER BY bytes_in_per_sec DESC, topic, partition
LIMIT 20
