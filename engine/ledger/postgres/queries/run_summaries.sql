-- Of each key ($2), its former ones included, the newest rows ($3), and of these the newest runs that ended by themselves ($4), and the
-- newest windows that have opened (as many); and its last failure, however old. One row of each status is
-- enough for that, as in fires.sql.
SELECT k.key, runs.*, ARRAY(
           SELECT status FROM (
               SELECT each.* FROM keys_of($1, k.key) AS n CROSS JOIN LATERAL (
                   SELECT * FROM fires
                   WHERE namespace = $1 AND key = n.key AND fire_time <= (SELECT clock_timestamp())
                   ORDER BY fire_time DESC, id DESC LIMIT $3) AS each
               ORDER BY fire_time DESC, id DESC LIMIT $3) AS opened
           WHERE kind = 'window' ORDER BY fire_time DESC, id DESC LIMIT $4) AS recent,
       failed.at AS last_failure_at, failed.status AS last_failure, failed.error
FROM unnest($2::text[]) AS k (key)
CROSS JOIN LATERAL (
    SELECT count(*) AS runs, count(*) FILTER (WHERE status = 'completed') AS completed,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms)
               FILTER (WHERE status = 'completed') AS median_duration_ms
    FROM (
        SELECT status, duration_ms
        FROM (
            SELECT each.* FROM keys_of($1, k.key) AS n CROSS JOIN LATERAL (
                SELECT * FROM fires WHERE namespace = $1 AND key = n.key
                ORDER BY fire_time DESC, id DESC LIMIT $3) AS each
            ORDER BY fire_time DESC, id DESC LIMIT $3) AS newest
        WHERE status IN ('completed', 'failed', 'timed_out') AND kind <> 'handler' AND merged_at IS NULL
        ORDER BY fire_time DESC, id DESC LIMIT $4) AS ended) AS runs
LEFT JOIN LATERAL (
    SELECT coalesce(f.closed_at, f.decided_at) AS at, f.status, coalesce(f.error, f.reason) AS error
    FROM (VALUES ('failed'), ('timed_out'), ('rejected')) AS bad (status)
    CROSS JOIN keys_of($1, k.key) AS n
    CROSS JOIN LATERAL (
        SELECT * FROM fires
        WHERE namespace = $1 AND key = n.key AND status = bad.status
          AND (status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped',
                          'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL)
        ORDER BY fire_time DESC, id DESC LIMIT 1) AS f
    ORDER BY f.fire_time DESC, f.id DESC LIMIT 1) AS failed ON true
