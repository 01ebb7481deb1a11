-- How far behind was each group at most while an execution ran, beside the plan that was carried out?
WITH span AS (
    SELECT kafka_cluster, execution_id, min(plan_id) AS plan_id, min(event_time) AS began_at, max(event_time) AS ended_at
    FROM execution
    GROUP BY kafka_cluster, execution_id
),
lag_of AS (
    SELECT kafka_cluster, group_id, window_start, window_end, sum(lag_records) AS lag_records
    FROM group_lag
    WHERE is_final
    GROUP BY kafka_cluster, group_id, window_start, window_end
)
SELECT span.kafka_cluster, span.execution_id, p.movement_count, lag_of.group_id,
       max(lag_of.lag_records) AS lag_records_max
FROM span
JOIN plan AS p ON p.kafka_cluster = span.kafka_cluster AND p.plan_id = span.plan_id
JOIN lag_of
  ON lag_of.kafka_cluster = span.kafka_cluster
 AND lag_of.window_end > span.began_at
 AND lag_of.window_start <= span.ended_at
GROUP BY span.kafka_cluster, span.execution_id, p.movement_count, lag_of.group_id
ORDER BY lag_records_max DESC, span.kafka_cluster, span.execution_id, lag_of.group_id
LIMIT 50
