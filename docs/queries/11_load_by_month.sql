-- How did each broker's load grow, month by month? The days stay for years, when the windows are long gone.
SELECT kafka_cluster,
       date_trunc('month', period_start) AS month,
       broker,
       avg(bytes_in_per_sec) / 1e6 AS mean_mb_in_per_sec,
       max(bytes_in_per_sec_max) / 1e6 AS peak_mb_in_per_sec,
       count(*) AS days
FROM broker_load_daily
GROUP BY kafka_cluster, date_trunc('month', period_start), broker
ORDER BY kafka_cluster, month, broker
