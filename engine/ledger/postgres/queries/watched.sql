-- Of each schedule that declares limits or is paused after failures: how its newest windows ended, and what may hold the next one.
SELECT s.key, s.project, d.definition, p.cursor, s.paused_at, s.paused_by, s.paused_reason,
       coalesce(newest.fires, '[]') AS fires
FROM definitions d
JOIN schedules s ON s.namespace = d.namespace AND s.key = d.key AND s.definition_version = d.version
JOIN LATERAL position_of(s.namespace, s.key) AS p ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(f.status, f.windows, f.reason_code, f.timing, f.fire_time, f.started_at, f.error)
                     ORDER BY f.fire_time DESC, f.id DESC) AS fires
    FROM (
        SELECT last.* FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
            SELECT f.id, f.status, f.windows, f.reason_code,
                   f.timing, f.fire_time, f.started_at, f.error
            FROM fires f
            WHERE f.namespace = s.namespace AND f.key = k.key AND f.series = s.series
              AND f.kind = 'window' AND f.fire_time <= (SELECT clock_timestamp())
            ORDER BY f.fire_time DESC, f.id DESC LIMIT 100) AS last
        ORDER BY last.fire_time DESC, last.id DESC LIMIT 100) AS f) AS newest ON true
WHERE d.namespace = $1 AND (d.definition ? 'alert' OR d.definition ? 'pauseAfterFailures') AND s.retired_at IS NULL AND s.enabled
ORDER BY s.key LIMIT $2
