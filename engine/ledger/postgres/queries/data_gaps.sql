-- Reported gaps, as they are now: some of the data may have been run since.
SELECT g.key, g.bucket, coalesce(before.fire_time, '-infinity') AS data_from, g.fire_time AS data_to
FROM data_gaps g
CROSS JOIN (SELECT ARRAY(SELECT k.key FROM keys_of($1, $2) AS k) AS keys) AS its
CROSS JOIN LATERAL window_after(g.namespace, its.keys, g.fire_time) AS later
LEFT JOIN LATERAL window_before(g.namespace, its.keys, g.fire_time) AS before ON true
WHERE g.namespace = $1 AND g.key = ANY (its.keys) AND g.told_at IS NOT NULL AND later.data_from >= g.fire_time
  AND NOT EXISTS (
      SELECT FROM fires f
      WHERE f.namespace = $1 AND f.key = ANY (its.keys) AND f.fire_time = g.fire_time
        AND f.kind IN ('window', 'rerun')
        AND f.status NOT IN ('claimed', 'queued', 'skipped', 'expired', 'rejected', 'unvouched'))
ORDER BY g.fire_time DESC LIMIT $3
