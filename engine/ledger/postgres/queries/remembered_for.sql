-- The longest that Temporal may still remember a run: retentions in force so lately that a run
-- closed under one may not have been forgotten yet.
SELECT max(retention) AS retention FROM retentions
WHERE namespace = $1 AND seen_until + retention > clock_timestamp()
