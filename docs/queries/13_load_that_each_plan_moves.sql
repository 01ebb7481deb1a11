-- How much client load does each movement of a plan take along, as measured in the plan's newest window?
-- In the window in which a leader moves, two brokers have led: the heavier row counts.
WITH led AS (
    SELECT kafka_cluster, window_end, topic, partition, max(bytes_in_per_sec) AS bytes_in_per_sec
    FROM partition_load
    WHERE role = 'leader' AND is_final
    GROUP BY kafka_cluster, window_end, topic, partition
)
SELECT p.kafka_cluster, p.plan_id, m.sequence, m.topic, m.partition, m.kind, m.bytes_to_move, led.bytes_in_per_sec
FROM plan AS p
JOIN movement AS m ON m.plan_id = p.plan_id AND coalesce(m.kafka_cluster, p.kafka_cluster) = p.kafka_cluster
LEFT JOIN led
  ON led.kafka_cluster = p.kafka_cluster
 AND led.window_end = p.window_end
 AND led.topic = m.topic
 AND led.partition = m.partition
ORDER BY p.kafka_cluster, p.created_at DESC, p.plan_id, m.sequence
LIMIT 200
