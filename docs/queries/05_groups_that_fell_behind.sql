-- Which groups are further behind in their last closed window than in their first, and how far?
WITH lag_of AS (
    SELECT kafka_cluster, group_id, window_start, sum(lag_records) AS lag_records
    FROM group_lag
    WHERE is_final
    GROUP BY kafka_cluster, group_id, window_start
),
edge AS (
    SELECT kafka_cluster, group_id, min(window_start) AS first_window, max(window_start) AS last_window
    FROM lag_of
    GROUP BY kafka_cluster, group_id
)
SELECT edge.kafka_cluster, edge.group_id, oldest.lag_records AS lag_records_first,
       newest.lag_records AS lag_records_last
FROM edge
JOIN lag_of AS oldest
  ON oldest.kafka_cluster = edge.kafka_cluster
 AND oldest.group_id = edge.group_id
 AND oldest.window_start = edge.first_window
JOIN lag_of AS newest
  ON newest.kafka_cluster = edge.kafka_cluster
 AND newest.group_id = edge.group_id
 AND newest.window_start = edge.last_window
WHERE newest.lag_records > oldest.lag_records
ORDER BY lag_records_last DESC, edge.kafka_cluster, edge.group_id
