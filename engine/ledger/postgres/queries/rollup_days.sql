-- Days are recounted until some of their rows have left the ledger. A lag is measured only on rows
-- that still name their run, so the count with the most of them stands.
INSERT INTO days AS d (namespace, project, key, day, windows, runs, open, completed, failed, cancelled,
                       terminated, timed_out, skipped, expired, rejected, unvouched, measured,
                       lag_p50_ms, lag_p95_ms, lag_max_ms)
SELECT $1, w.project, $2, w.day, sum(w.windows),
       coalesce(sum(w.windows) FILTER (WHERE w.status IN
           ('started', 'completed', 'failed', 'cancelled', 'terminated', 'timed_out')), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status IN ('claimed', 'queued', 'starting', 'started')), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'completed'), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'failed'), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'cancelled'), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'terminated'), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'timed_out'), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'skipped'), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'expired'), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'rejected'), 0),
       coalesce(sum(w.windows) FILTER (WHERE w.status = 'unvouched'), 0),
       count(w.lag),
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY w.lag))::bigint,
       round(percentile_cont(0.95) WITHIN GROUP (ORDER BY w.lag))::bigint,
       max(w.lag)::bigint
FROM (
    SELECT f.project, (f.fire_time AT TIME ZONE 'UTC')::date AS day, f.windows, f.status,
           round(extract(epoch FROM f.started_at - f.fire_time) * 1000)::float8 AS lag
    FROM fires f
    WHERE f.namespace = $1 AND f.key = $2 AND f.fire_time >= $3 AND f.fire_time < $4
      AND f.kind NOT IN ('rerun', 'handler')
      AND (f.fire_time AT TIME ZONE 'UTC')::date = (f.last_fire_time AT TIME ZONE 'UTC')::date
    UNION ALL
    SELECT p.project, p.day, p.windows, p.status, NULL
    FROM unnest(:project::text[], :utc_day::date[], :windows::bigint[], :status::text[]) AS p (project, day, windows, status)
) AS w
GROUP BY w.project, w.day
ON CONFLICT (namespace, key, day, project) DO UPDATE
SET windows = excluded.windows, runs = excluded.runs, open = excluded.open,
    completed = excluded.completed, failed = excluded.failed, cancelled = excluded.cancelled,
    terminated = excluded.terminated, timed_out = excluded.timed_out, skipped = excluded.skipped,
    expired = excluded.expired, rejected = excluded.rejected, unvouched = excluded.unvouched,
    summarised_at = clock_timestamp(), measured = greatest(d.measured, excluded.measured),
    lag_p50_ms = CASE WHEN excluded.measured >= d.measured THEN excluded.lag_p50_ms ELSE d.lag_p50_ms END,
    lag_p95_ms = CASE WHEN excluded.measured >= d.measured THEN excluded.lag_p95_ms ELSE d.lag_p95_ms END,
    lag_max_ms = CASE WHEN excluded.measured >= d.measured THEN excluded.lag_max_ms ELSE d.lag_max_ms END
WHERE NOT d.final
