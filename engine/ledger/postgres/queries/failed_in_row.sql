-- Of each schedule that is to be paused after failures: its newest runs that ended by themselves, as many as
-- may fail in a row. A window that was decided before the last resume does not count, however late it ends.
SELECT s.key, s.project, ended.failures::int, ended.newest, ended.error
FROM definitions d
JOIN schedules s ON s.namespace = d.namespace AND s.key = d.key AND s.definition_version = d.version
CROSS JOIN LATERAL (SELECT (d.definition ->> 'pauseAfterFailures')::int AS most OFFSET 0) AS allowed
LEFT JOIN LATERAL (
    SELECT a.at FROM actions a
    WHERE a.namespace = s.namespace AND a.key = ANY (s.key || s.former) AND a.verb = 'resume'
    ORDER BY a.at DESC, a.id DESC LIMIT 1) AS resumed ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status <> 'completed') AS failures,
           (array_agg(workflow_id ORDER BY fire_time DESC, id DESC))[1] AS newest,
           (array_agg(error ORDER BY fire_time DESC, id DESC))[1] AS error
    FROM (
        SELECT last.* FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
            SELECT f.id, f.fire_time, f.status, f.workflow_id, f.error FROM fires f
            WHERE f.namespace = s.namespace AND f.key = k.key AND f.series = s.series AND f.kind = 'window'
              AND f.status IN ('completed', 'failed', 'timed_out') AND f.merged_at IS NULL
              AND f.decided_at > coalesce(resumed.at, '-infinity')
            ORDER BY f.fire_time DESC, f.id DESC LIMIT allowed.most) AS last
        ORDER BY last.fire_time DESC, last.id DESC LIMIT allowed.most) AS newest) AS ended
WHERE d.namespace = $1 AND d.definition ? 'pauseAfterFailures'
  AND s.retired_at IS NULL AND s.enabled AND s.paused_at IS NULL
  AND ($2::text[] IS NULL OR s.key = ANY ($2::text[]))
  AND ended.failures >= allowed.most
ORDER BY s.key
