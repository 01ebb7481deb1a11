-- Why was nothing done? Every evaluation has a row and a reason.
SELECT verdict, reason, count(*) AS evaluations, max(decided_at) AS last_at
FROM decision
GROUP BY verdict, reason
ORDER BY evaluations DESC, verdict, reason
