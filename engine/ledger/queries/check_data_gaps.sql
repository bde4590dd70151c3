-- Of windows that were denied $2 ago or more, of some keys: whether a run that began later has left their
-- data to them. All that were denied one after another are one gap, by the name of the last.
WITH noted AS (
    SELECT DISTINCT ON (g.key) g.key, g.fire_time
    FROM data_gaps g
    WHERE g.namespace = $1 AND g.told_at IS NULL AND g.noted_at < clock_timestamp() - $2::interval
    ORDER BY g.key, g.fire_time DESC LIMIT $3
), asked AS (
    SELECT n.key, n.fire_time, coalesce(before.fire_time, '-infinity') AS data_from,
           coalesce(later.data_from >= n.fire_time, false) AND NOT EXISTS (
               SELECT FROM fires f
               WHERE f.namespace = $1 AND f.key BETWEEN n.key AND n.key AND f.fire_time = n.fire_time
                 AND f.kind IN ('window', 'rerun')
                 AND f.status NOT IN ('skipped', 'expired', 'rejected', 'unvouched')) AS is_gap
    FROM noted n
    LEFT JOIN LATERAL window_before($1, n.key, n.fire_time) AS before ON true
    LEFT JOIN LATERAL window_after($1, n.key, n.fire_time) AS later ON true
), others AS (
    DELETE FROM data_gaps g USING asked a
    WHERE g.namespace = $1 AND g.key = a.key AND g.told_at IS NULL
      AND g.noted_at < clock_timestamp() - $2::interval
      AND g.fire_time > a.data_from AND g.fire_time <= a.fire_time
      AND NOT (a.is_gap AND g.fire_time = a.fire_time)
)
UPDATE data_gaps g SET told_at = clock_timestamp(), data_from = a.data_from
FROM asked a
WHERE a.is_gap AND g.namespace = $1 AND g.key = a.key AND g.fire_time = a.fire_time AND g.told_at IS NULL
RETURNING g.key, g.bucket, g.data_from, g.fire_time AS data_to
