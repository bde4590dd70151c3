-- Found by the IDs that its run may have, which are indexed; no index has the bucket.
SELECT * FROM fire_history
WHERE namespace = $1 AND key = $2 AND kind = 'window' AND bucket = $3
  AND ($4::int IS NULL OR series = $4)
  AND workflow_id IN (
      SELECT 'sched:' || s.key || ':' || $3::bigint || suffix.text
      FROM schedules s
      CROSS JOIN LATERAL (
          SELECT '' AS text UNION ALL SELECT ':s' || n FROM generate_series(1, s.series) AS n) AS suffix
      WHERE s.namespace = $1 AND s.key = $2)
ORDER BY series DESC LIMIT 1
