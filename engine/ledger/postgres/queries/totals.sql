-- How much of each kind there is, at most $2 of each: a gauge needs no larger number, and an outage
-- that leaves a million behind must not make this slow. Each count reads a partial index.
SELECT
    (SELECT count(*) FROM (
        SELECT FROM fires WHERE namespace = $1 AND status = 'queued'
        LIMIT $2) AS them) AS queued,
    (SELECT count(*) FROM (
        SELECT FROM fires WHERE namespace = $1 AND status IN ('claimed', 'starting')
          AND lost_at IS NULL
        LIMIT $2) AS them) AS pending,
    (SELECT count(*) FROM (
        SELECT FROM fires WHERE namespace = $1 AND status = 'started' AND lost_at IS NULL
        LIMIT $2) AS them) AS open_runs,
    (SELECT count(*) FROM (
        SELECT FROM fires WHERE namespace = $1 AND status IN ('failed', 'timed_out', 'rejected')
          AND dealt_at IS NULL AND merged_at IS NULL
        LIMIT $2) AS them) AS dead_letters,
    -- Of each lane of the project the earliest due are read, and of them those past their own grace
    -- are counted: one that is late for minutes is among them.
    (SELECT count(*)
     FROM unnest($4::text[]) AS lanes (lane)
     CROSS JOIN LATERAL (
         SELECT p.key, p.next_fire_at FROM positions p
         WHERE p.namespace = $1 AND p.project = $3 AND p.lane = lanes.lane
           AND p.due_at <= (SELECT clock_timestamp())
         ORDER BY p.due_at LIMIT $2) AS due
     JOIN schedules s ON s.namespace = $1 AND s.key = due.key
     WHERE due.next_fire_at < (SELECT clock_timestamp()) - s.grace) AS overdue
