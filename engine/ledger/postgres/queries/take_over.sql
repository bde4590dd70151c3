-- A lease ended: its owner is dead or suspended, or requested a later retry. SKIP LOCKED and the
-- new token make sure that one sweeper gets it. Pause and retirement revoke what was only claimed;
-- a starting fire may have been sent and goes on. A pause whose end has passed revokes nothing: it is
-- in the row until all its windows are decided, and some of those that it ends with may be here. A hold is that
-- of the schedule by its present key.
-- A fire that may have been sent is swept where it was sent, any other where windows are claimed.
-- It may have been sent, too, if this is an old copy of a ledger: see retentions.unseen_from.
-- $8: the newest of them, in the same order, so that what somebody asks for just now waits for no flood.
WITH stale AS (
    SELECT f.id, f.kind, f.timing, f.status AS was, s.retired_at, d.definition,
           coalesce(f.starting_at, (
               SELECT waits.since
               FROM (SELECT greatest(f.decided_at, (f.history -> -1 ->> 'until')::timestamptz)) AS waits (since)
               JOIN retentions r ON r.namespace = $1 AND r.binding = $7 AND r.unseen_from >= waits.since
               LIMIT 1)) AS sent_at,
           s.paused_at IS NOT NULL
               AND (s.paused_until IS NULL OR s.paused_until > (SELECT clock_timestamp())) AS paused
    FROM fires f
    JOIN schedules own ON own.namespace = f.namespace AND own.key = f.key
    JOIN schedules s ON s.namespace = own.namespace AND s.key = coalesce(own.successor, own.key)
    JOIN definitions d ON d.namespace = f.namespace AND d.key = f.key AND d.version = f.definition_version
    WHERE f.namespace = $1 AND f.project = $2 AND f.status IN ('claimed', 'starting')
      AND CASE WHEN f.status = 'claimed' AND f.kind <> 'handler'
               THEN (SELECT NOT EXISTS (SELECT FROM bindings b
                                        WHERE b.namespace = $1 AND b.current AND b.number <> $7))
               ELSE f.binding = $7 END
      AND f.lease_until <= (SELECT clock_timestamp())
      AND f.lease_until >= CASE WHEN $8 THEN (
              SELECT coalesce(min(newest.lease_until), $6)
              FROM (SELECT n.lease_until FROM fires n
                    WHERE n.namespace = $1 AND n.project = $2 AND n.status IN ('claimed', 'starting')
                      AND n.lease_until >= $6 AND n.lease_until <= (SELECT clock_timestamp())
                    ORDER BY n.lease_until DESC LIMIT $4) AS newest)
          ELSE $6 END
    ORDER BY f.lease_until, f.id LIMIT $4
    FOR UPDATE OF f SKIP LOCKED
), taken AS (
    UPDATE fires f
    SET status = CASE WHEN revoked.reason IS NULL THEN 'starting' ELSE 'skipped' END,
        reason = coalesce(revoked.reason, f.reason), reason_code = coalesce(revoked.reason, f.reason_code),
        owner = CASE WHEN revoked.reason IS NULL THEN $3 END,
        replica = coalesce($3, f.replica), binding = $7,
        token = CASE WHEN revoked.reason IS NULL THEN gen_random_uuid() END,
        lease_until = CASE WHEN revoked.reason IS NULL THEN clock_timestamp() + $5::interval END,
        starting_at = CASE WHEN revoked.reason IS NULL THEN coalesce(stale.sent_at, clock_timestamp()) END,
        attempts = f.attempts + 1
    FROM stale
    CROSS JOIN LATERAL (SELECT CASE
        WHEN stale.was = 'claimed' AND stale.retired_at IS NOT NULL
             AND stale.kind <> 'handler' THEN 'retired'
        WHEN stale.was = 'claimed' AND stale.kind = 'window'
             AND stale.timing IS DISTINCT FROM 'backfill' AND stale.paused THEN 'paused' END AS reason) AS revoked
    WHERE f.id = stale.id
    RETURNING f.*, stale.was = 'claimed' AND stale.sent_at IS NULL AS fresh, stale.definition || coalesce(f.options, '{}') AS definition
)
SELECT taken.*,
       (SELECT t.rules FROM workflow_types t
        WHERE t.namespace = $1 AND t.task_queue = taken.task_queue AND t.type = taken.workflow_type) AS rules,
       -- In force since the start: those seen after it, and the stretch that it fell into.
       (SELECT min(r.retention) FROM retentions r
        WHERE r.namespace = $1 AND r.binding = $7 AND (r.seen_until >= taken.starting_at OR r.seen_from = (
            SELECT max(before.seen_from) FROM retentions before
            WHERE before.namespace = $1 AND before.binding = $7 AND before.seen_from <= taken.starting_at))) AS retention
FROM taken WHERE taken.status = 'starting'
