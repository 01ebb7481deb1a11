-- Did the pipeline keep up? Records not yet read and the longest batch, by hour and query.
SELECT kafka_cluster,
       query_name,
       date_trunc('hour', finished_at) AS hour,
       max(source_lag_records) AS source_lag_records_max,
       max(duration_ms) AS duration_ms_max
FROM pipeline_batch
GROUP BY kafka_cluster, query_name, date_trunc('hour', finished_at)
ORDER BY hour, kafka_cluster, query_name
