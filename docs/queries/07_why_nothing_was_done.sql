-- Why was nothing done? Every evaluation has a row and a reason.
SELECT kafka_cluster, verdict, reason, count(*) AS evaluations, max(decided_at) AS last_at
FROM decision
GROUP BY kafka_cluster, verdict, reason
ORDER BY evaluations DESC, kafka_cluster, verdict, reason
