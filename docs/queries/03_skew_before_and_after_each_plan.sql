-- What did each plan promise, and what was measured after it?
SELECT p.kafka_cluster,
       p.plan_id,
       p.movement_count,
       p.bytes_to_move,
       p.bytes_in_max_over_mean_before AS skew_before,
       p.bytes_in_max_over_mean_after AS skew_promised,
       max(e.bytes_in_max_over_mean_measured) AS skew_measured
FROM plan AS p
LEFT JOIN execution AS e ON e.kafka_cluster = p.kafka_cluster AND e.plan_id = p.plan_id AND e.event = 'measured'
GROUP BY p.kafka_cluster, p.plan_id, p.movement_count, p.bytes_to_move, p.bytes_in_max_over_mean_before,
         p.bytes_in_max_over_mean_after
ORDER BY p.kafka_cluster, p.plan_id
