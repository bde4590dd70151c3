-- Rule L1: a fire moves by compare-and-set on its status and its owner's token. Locked in ID order,
-- as in record_evidence.sql: an UPDATE alone locks in any order, and two could deadlock. The status
-- is compared by an expression that no index has: fires being sent are so few that the planner
-- would read all of them, and beside an old snapshot all that ever were.
WITH outcomes AS (
    SELECT * FROM unnest(:fire_id::bigint[], :token::uuid[], :status::text[], :timing::text[], :run_id::text[],
                         :started_at::timestamptz[], :reason::text[], :error::text[], :retry_after::interval[],
                         :first_run_id::text[], :reason_code::text[], :reported::bool[])
        AS o (id, token, status, timing, run_id, started_at, reason, error, retry_after, first_run_id, code,
              reported)
), locked AS (
    SELECT f.id FROM fires f JOIN outcomes o ON o.id = f.id AND o.token = f.token
    WHERE f.status || '' = 'starting'
    ORDER BY f.id FOR UPDATE OF f)
UPDATE fires f
SET status = o.status,
    run_id = coalesce(o.run_id, f.run_id),
    first_run_id = coalesce(f.first_run_id, o.first_run_id),
    started_at = coalesce(o.started_at, f.started_at),
    timing = coalesce(o.timing, f.timing),
    reason = coalesce(o.reason, f.reason),
    reason_code = CASE WHEN o.reason IS NULL THEN f.reason_code ELSE o.code END,
    error = o.error,
    counted = CASE WHEN o.status = 'started' AND o.reported AND f.counted IS DISTINCT FROM 'elsewhere'
                   THEN 'reported' ELSE f.counted END,
    step_retries = CASE WHEN o.status = 'started' AND o.reported THEN coalesce(f.step_retries, 0)
                        ELSE f.step_retries END,
    owner = NULL,
    token = CASE WHEN o.status = 'starting' THEN f.token END,
    lease_until = CASE WHEN o.status = 'starting' THEN clock_timestamp() + o.retry_after END
FROM locked JOIN outcomes o USING (id)
WHERE f.id = locked.id AND f.token = o.token AND f.status || '' = 'starting'
RETURNING f.id
