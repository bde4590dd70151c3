-- One that was never sent to the receiver is forgotten: there is nothing to take back.
WITH gone AS (
    SELECT name, sent OR attempts > 0 AS told FROM alerts
    WHERE namespace = $1 AND resolved_at IS NULL AND code = ANY ($2::text[]) AND name <> ALL ($3::text[])
    FOR UPDATE),
forgotten AS (
    DELETE FROM alerts a USING gone g WHERE a.namespace = $1 AND a.name = g.name AND NOT g.told
    RETURNING a.*),
resolved AS (
    UPDATE alerts a
    -- It may have heard an attempt without an answer: then it has to hear the end as well.
    SET resolved_at = statement_timestamp(), due_at = statement_timestamp(), sent = true, attempts = 0, error = NULL
    FROM gone g WHERE a.namespace = $1 AND a.name = g.name AND g.told
    RETURNING a.*)
SELECT name, code, text, since, project, key, cause, opened_at, statement_timestamp() AS resolved_at, sent,
       attempts, error
FROM (SELECT * FROM forgotten UNION ALL SELECT * FROM resolved) AS either
ORDER BY opened_at, name
