-- What was rejected, by topic and reason, and when last?
SELECT kafka_cluster, source_topic, reason,
       CAST(sum(coalesce(records_not_kept, 1)) AS bigint) AS records, max(rejected_at) AS last_at
FROM rejected_record
GROUP BY kafka_cluster, source_topic, reason
ORDER BY records DESC, kafka_cluster, source_topic, reason
