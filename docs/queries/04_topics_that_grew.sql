-- Which topics grew most on disk between the first and the last closed window there is? Leaders only: copies count once.
-- In the window in which a leader moves, two brokers have led: the larger log is the whole one.
WITH led AS (
    SELECT kafka_cluster, topic, window_start, max(size_bytes) AS size_bytes
    FROM partition_load
    WHERE role = 'leader' AND is_final
    GROUP BY kafka_cluster, topic, partition, window_start
),
size AS (
    SELECT kafka_cluster, topic, window_start, sum(size_bytes) AS size_bytes
    FROM led
    GROUP BY kafka_cluster, topic, window_start
),
edge AS (
    SELECT kafka_cluster, topic, min(window_start) AS first_window, max(window_start) AS last_window
    FROM size
    GROUP BY kafka_cluster, topic
)
SELECT edge.kafka_cluster, edge.topic, newest.size_bytes - oldest.size_bytes AS grown_bytes,
       newest.size_bytes AS size_bytes
FROM edge
JOIN size AS oldest
  ON oldest.kafka_cluster = edge.kafka_cluster AND oldest.topic = edge.topic AND oldest.window_start = edge.first_window
JOIN size AS newest
  ON newest.kafka_cluster = edge.kafka_cluster AND newest.topic = edge.topic AND newest.window_start = edge.last_window
ORDER BY grown_bytes DESC, edge.kafka_cluster, edge.topic
LIMIT 20
