-- Nobody asks these namespaces again. A fire that was being sent there may have run. Nobody will see an
-- open run end, so it stands in no window's way. A handler that waits is sent to the current binding. As
-- many as $2: however many are open, each statement is short. Locked in ID order, as in
-- record_evidence.sql.
WITH here AS (
    SELECT number FROM bindings WHERE namespace = $1 AND current
), closed AS (
    UPDATE bindings SET closed_at = clock_timestamp()
    WHERE namespace = $1 AND NOT current AND closed_at IS NULL
), next AS (
    SELECT f.id FROM fires f, here
    WHERE f.namespace = $1 AND f.binding <> here.number AND f.lost_at IS NULL
      AND f.status IN ('claimed', 'starting', 'started') AND (f.status <> 'claimed' OR f.kind = 'handler')
    ORDER BY f.key, f.id LIMIT $2
), locked AS (
    SELECT f.id FROM fires f JOIN next USING (id) ORDER BY f.id FOR UPDATE OF f
), ended AS (
    UPDATE fires f
    SET status = CASE f.status WHEN 'starting' THEN 'unvouched' ELSE f.status END,
        reason = CASE f.status WHEN 'starting' THEN :reason ELSE f.reason END,
        reason_code = CASE f.status WHEN 'starting' THEN :code ELSE f.reason_code END,
        binding = CASE f.status WHEN 'claimed' THEN here.number ELSE f.binding END,
        owner = NULL, token = NULL,
        lease_until = CASE f.status WHEN 'claimed' THEN f.lease_until END,
        lost_at = CASE f.status WHEN 'started' THEN clock_timestamp() END,
        error = CASE f.status WHEN 'started' THEN :error ELSE f.error END,
        failing = NULL
    FROM locked, here
    WHERE f.id = locked.id AND f.status IN ('claimed', 'starting', 'started') AND f.lost_at IS NULL
    RETURNING f.status)
SELECT count(*) FILTER (WHERE status = 'unvouched') AS unvouched,
       count(*) FILTER (WHERE status = 'started') AS lost,
       (SELECT count(*) FROM next) = $2 AS more
FROM ended
