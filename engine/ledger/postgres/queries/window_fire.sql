-- Found by the IDs that its run may have, which are indexed; no index has the bucket.
SELECT f.* FROM keys_of($1, $2) AS k
JOIN schedules s ON s.namespace = $1 AND s.key = k.key
CROSS JOIN LATERAL (SELECT '' AS text UNION ALL SELECT ':s' || n FROM generate_series(1, s.series) AS n) AS suffix
CROSS JOIN LATERAL (
    SELECT * FROM fire_rows
    WHERE namespace = $1 AND workflow_id = 'sched:' || k.key || ':' || $3::bigint || suffix.text OFFSET 0) AS f
WHERE f.key = k.key AND f.kind = 'window' AND f.bucket = $3 AND ($4::int IS NULL OR f.series = $4)
ORDER BY f.series DESC LIMIT 1
