-- All that an idle tick does. What it asks of the server lies in its memory, and every role may ask.
-- Each lane is one index descent, so the time does not depend on the number of schedules. `lane = ANY(...) ORDER BY next_fire_at` would sort every due row.
SELECT clock_timestamp() AS now, ledger.ledger_id, ledger.epoch, ledger.doubted_at AS suspect_until,
       CASE WHEN NOT pg_is_in_recovery() THEN pg_postmaster_start_time() END AS server,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS transactions,
       (SELECT min(first.next_fire_at)
        FROM unnest($3::text[]) AS lanes (lane)
        CROSS JOIN LATERAL (
            SELECT s.next_fire_at FROM schedules s
            WHERE s.namespace = $1 AND s.project = $2 AND s.lane = lanes.lane
              AND s.next_fire_at IS NOT NULL
              AND (s.external OR s.workflow_type = ANY ($4::text[])) AND s.rules <= $5
            ORDER BY s.next_fire_at LIMIT 1) AS first) AS due_at,
       (SELECT min(f.lease_until) FROM fires f
        WHERE f.namespace = $1 AND f.project = $2 AND f.status IN ('claimed', 'starting')) AS stale_at,
       (SELECT min(f.stop_at) FROM fires f
        WHERE f.namespace = $1 AND f.project = $2 AND f.stop IS NOT NULL AND f.status = 'started') AS stop_at,
       EXISTS (SELECT 1 FROM schedules s
               WHERE s.namespace = $1 AND s.project = $2 AND s.parents <> '{}') AS chained
FROM ledger
