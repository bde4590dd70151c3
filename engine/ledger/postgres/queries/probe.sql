-- All that an idle tick does. What it asks of the server is in memory, and every role may ask. Each
-- lane is one index descent, whatever the number of schedules; `lane = ANY(...) ORDER BY due_at`
-- would sort every due row. Beside an old snapshot no dead index entry is removed, and a search for
-- the first would read them all: $6 to $8 are where to begin; leases and stops after $9 can wait.
-- A replica whose binding ($10) is not current looks after what was sent there.
SELECT clock_timestamp() AS now, ledger.ledger_id, ledger.epoch, ledger.doubted_at AS suspect_until,
       CASE WHEN NOT pg_is_in_recovery() THEN pg_postmaster_start_time() END AS server,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS transactions,
       mine.is_current,
       (SELECT min(first.due_at)
        FROM unnest($3::text[]) AS lanes (lane)
        CROSS JOIN LATERAL (
            SELECT p.due_at FROM positions p
            WHERE p.namespace = $1 AND p.project = $2 AND p.lane = lanes.lane
              AND p.due_at >= $6 AND p.rules <= $5
              AND EXISTS (
                  SELECT 1 FROM schedules s WHERE s.namespace = p.namespace AND s.key = p.key
                    AND (s.lane = '' OR s.workflow_type = ANY ($4::text[])) OFFSET 0)
            ORDER BY p.due_at LIMIT 1) AS first
        WHERE mine.is_current) AS due_at,
       (SELECT min(f.lease_until) FROM fires f
        WHERE f.namespace = $1 AND f.project = $2 AND f.status IN ('claimed', 'starting')
          AND CASE WHEN f.status = 'claimed' AND f.kind <> 'handler' THEN mine.is_current ELSE f.binding = $10 END
          AND f.lease_until >= $7 AND f.lease_until <= (SELECT clock_timestamp()) + $9::interval) AS stale_at,
       (SELECT min(f.stop_at) FROM fires f
        WHERE f.namespace = $1 AND f.project = $2 AND f.stop IS NOT NULL AND f.status = 'started'
          AND f.binding = $10 AND f.stop_at >= $8 AND f.stop_at <= (SELECT clock_timestamp()) + $9::interval) AS stop_at,
       EXISTS (SELECT 1 FROM schedules s
               WHERE s.namespace = $1 AND s.project = $2 AND s.parents <> '{}') AS chained,
       (SELECT min(b.next_at)
        FROM backfills b
        -- Each by its key; a halted one is checked when it continues, as in lock_laying.sql.
        CROSS JOIN LATERAL (
            SELECT 1 FROM schedules s
            WHERE s.namespace = b.namespace AND s.key = b.key AND s.project = $2
              AND s.lane = ANY ($3::text[])
              AND (s.external OR s.workflow_type = ANY ($4::text[])) AND s.rules <= $5
              AND (s.retired_at IS NOT NULL OR s.series <> b.series
                   OR (s.enabled AND (s.paused_at IS NULL OR s.paused_at <= b.requested_at)))
            LIMIT 1) AS its
        WHERE b.namespace = $1 AND b.state = 'laying' AND mine.is_current) AS lay_at
FROM ledger
CROSS JOIN (SELECT NOT EXISTS (SELECT FROM bindings b
                               WHERE b.namespace = $1 AND b.current AND b.number <> $10) AS is_current OFFSET 0) AS mine
