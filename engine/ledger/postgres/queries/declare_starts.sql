-- The row to which the fires of a workflow's starts belong. Only the first start ever finds none; a
-- later one must not lock it. Its cursor is beyond every fire, so that old ones leave the ledger.
WITH added AS (
    INSERT INTO schedules (namespace, key, project, definition_version, digest, series, suffixed,
                           effective_from, cursor, next_fire_at, workflow, workflow_type,
                           task_queue, external, grace, enabled, rules, origin)
    SELECT $1, $2, '@', 1, $4, 1, false, clock_timestamp(), '2101-01-01T00:00:00Z', NULL, $5, NULL,
           '@', false, '60 s', true, $6, 'api'
    WHERE NOT EXISTS (SELECT FROM schedules WHERE namespace = $1 AND key = $2)
    ON CONFLICT (namespace, key) DO NOTHING
    RETURNING effective_from)
INSERT INTO definitions (namespace, key, version, series, project, definition, digest,
                         effective_from, applied_at, applied_by)
SELECT $1, $2, 1, 1, '@', $3::jsonb, $4, added.effective_from, added.effective_from, $7 FROM added
