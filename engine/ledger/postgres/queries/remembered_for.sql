-- The longest time for which Temporal may still remember a run: over the retentions in force so
-- recently that a run closed under one of them may not be forgotten yet.
SELECT max(retention) AS retention FROM retentions
WHERE namespace = $1 AND seen_until + retention > clock_timestamp()
