-- How uneven was the load, window by window? 1 is even; the trigger looks at the same figure.
SELECT window_start,
       max(bytes_in_per_sec + coalesce(replication_bytes_in_per_sec, 0))
           / avg(bytes_in_per_sec + coalesce(replication_bytes_in_per_sec, 0)) AS max_over_mean,
       count(bytes_in_per_sec) AS brokers_reporting
FROM broker_load
WHERE is_final
GROUP BY window_start
HAVING avg(bytes_in_per_sec) > 0
ORDER BY window_start
