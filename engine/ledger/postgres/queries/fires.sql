-- The newest fires, of a key and its former ones, of a status or a reason code, where given. A line with a `:name`,
-- be it in a comment, is left out unless that one is given, see list_schedules.sql: under a generic plan
-- `$2 IS NULL OR key = $2` would read every row from the newest on. The status is tested twice (`:rare`), because a
-- parameter alone does not match the predicate of a partial index; with a reason code each status is read in the
-- order of its index, so that none with many rows hides one with few. Of each no more is read than is asked for.
-- The inner limit lets the planner expect few rows, which an unknown number does not, and is as low because a plan
-- that sorts by the run reads as many. Of those at :until only the ones whose run follows :after: with the last row
-- of a page these are the rest.
-- Open fires that are not in line (:open) have no order and are few: all of them are found, in the index that has no
-- others, and then read one by one. The planner takes them for many, because it does not know that most of the runs
-- that never closed may be lost. If it had to read the table, the index with all that wait would seem as cheap, now
-- and then cheaper, as its statistics are a sample.
SELECT found.* FROM (
    SELECT shown.* FROM (VALUES (1)) AS once (n)
    CROSS JOIN keys_of($1, :key) AS k
    CROSS JOIN unnest(:statuses::text[]) AS wanted (status)
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT * FROM fire_rows
            WHERE namespace = $1 AND fire_time >= :since AND fire_time <= :until
              AND (fire_time < :until OR workflow_id > :after)
              AND key = k.key  -- :key
              AND status = :status
              AND status = :rare AND (status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped', 'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL)
              AND status = wanted.status AND reason_code = :reason_code AND reason IS NOT NULL
            ORDER BY fire_time DESC, workflow_id LIMIT 1000) AS few
        LIMIT :limit) AS shown
    UNION ALL (SELECT shown.*  -- :open
               FROM (SELECT id, key FROM fires  -- :open
                     WHERE namespace = $1 AND status IN ('claimed', 'starting', 'started') AND lost_at IS NULL  -- :open
                     OFFSET 0) AS open  -- :open
               CROSS JOIN LATERAL (SELECT workflow_id FROM fires WHERE id = open.id AND status = :open OFFSET 0) AS run
               CROSS JOIN LATERAL (SELECT * FROM fire_rows WHERE namespace = $1 AND workflow_id = run.workflow_id OFFSET 0) AS shown  -- :open
               WHERE shown.fire_time >= :since AND shown.fire_time <= :until  -- :open
                 AND (shown.fire_time < :until OR shown.workflow_id > :after)  -- :open
                 AND open.key IN (SELECT k.key FROM keys_of($1, :key) AS k)  -- :open
               ORDER BY shown.fire_time DESC, shown.workflow_id LIMIT 1000)  -- :open
) AS found
ORDER BY fire_time DESC, workflow_id LIMIT :limit
