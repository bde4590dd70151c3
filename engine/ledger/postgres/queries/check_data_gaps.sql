-- Of windows denied $2 ago or more, the newest $3 of some keys: those whose data a later run has left
-- to them. Windows denied one after another are one gap, named by the last of them; one that is denied
-- when such a gap has been told already becomes part of it, because the rerun that closes it covers both.
WITH noted AS (
    SELECT g.key, g.fire_time
    FROM data_gaps g
    WHERE g.namespace = $1 AND g.told_at IS NULL AND g.noted_at < clock_timestamp() - $2::interval
    ORDER BY g.key, g.fire_time DESC LIMIT $3
), asked AS (
    SELECT n.key, its.keys, n.fire_time, coalesce(before.fire_time, '-infinity') AS data_from,
           coalesce(later.data_from, '-infinity') AS left_until,
           coalesce(later.data_from >= n.fire_time, false) AS is_left,
           EXISTS (SELECT FROM data_gaps t
                   WHERE t.namespace = $1 AND t.key = n.key AND t.told_at IS NOT NULL
                     AND t.fire_time > n.fire_time AND t.fire_time <= later.data_from) AS is_part
    FROM noted n
    CROSS JOIN LATERAL (SELECT ARRAY(SELECT k.key FROM keys_of($1, n.key) AS k) AS keys OFFSET 0) AS its
    LEFT JOIN LATERAL window_before($1, its.keys, n.fire_time) AS before ON true
    LEFT JOIN LATERAL window_after($1, its.keys, n.fire_time) AS later ON true
), last AS (
    SELECT DISTINCT ON (a.key, a.data_from, a.is_left) a.key, a.fire_time, a.data_from,
           CASE WHEN a.is_left THEN a.data_from ELSE greatest(a.data_from, a.left_until) END AS since,
           a.is_left AND NOT a.is_part AND NOT EXISTS (
               SELECT FROM fires f
               WHERE f.namespace = $1 AND f.key = ANY (a.keys) AND f.fire_time = a.fire_time
                 AND f.kind IN ('window', 'rerun')
                 AND f.status NOT IN ('skipped', 'expired', 'rejected', 'unvouched')) AS is_gap
    FROM asked a
    ORDER BY a.key, a.data_from, a.is_left, a.fire_time DESC
), others AS (
    DELETE FROM data_gaps g USING last l
    WHERE g.namespace = $1 AND g.key = l.key AND g.told_at IS NULL
      AND g.noted_at < clock_timestamp() - $2::interval
      AND g.fire_time > l.since AND g.fire_time <= l.fire_time
      AND NOT (l.is_gap AND g.fire_time = l.fire_time)
)
UPDATE data_gaps g SET told_at = clock_timestamp()
FROM last l
WHERE l.is_gap AND g.namespace = $1 AND g.key = l.key AND g.fire_time = l.fire_time AND g.told_at IS NULL
RETURNING g.key, g.bucket, l.data_from, g.fire_time AS data_to
