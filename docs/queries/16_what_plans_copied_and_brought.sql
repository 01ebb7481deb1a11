-- What did all executed plans of a month copy and bring, by cluster? Skews are means over the plans measured afterwards.
WITH executed AS (
    SELECT kafka_cluster,
           execution_id,
           date_trunc('month', max(event_time)) AS month,
           max(bytes_moved) AS bytes_moved,
           max(movements_done) AS movements_done,
           max(bytes_in_max_over_mean_before) AS skew_before,
           max(bytes_in_max_over_mean_predicted) AS skew_promised,
           max(bytes_in_max_over_mean_measured) AS skew_measured
    FROM execution
    GROUP BY kafka_cluster, execution_id
    HAVING max(CASE WHEN event IN ('done', 'aborted') THEN 1 ELSE 0 END) = 1
)
SELECT kafka_cluster,
       month,
       count(*) AS executions,
       CAST(sum(movements_done) AS bigint) AS movements_done,
       CAST(sum(bytes_moved) AS bigint) AS bytes_moved,
       count(skew_measured) AS measured,
       avg(CASE WHEN skew_measured IS NOT NULL THEN skew_before END) AS skew_before,
       avg(CASE WHEN skew_measured IS NOT NULL THEN skew_promised END) AS skew_promised,
       avg(skew_measured) AS skew_measured
FROM executed
GROUP BY month, kafka_cluster
ORDER BY month DESC, kafka_cluster
