-- An open alert keeps its beginning. One that was resolved, and has come again, begins anew; the receiver, which
-- has not confirmed the end, still has it.
INSERT INTO alerts AS a (namespace, name, code, text, since, project, key, cause, opened_at, due_at)
SELECT $1, p.*, statement_timestamp(), statement_timestamp()
FROM unnest(:name::text[], :code::text[], :text::text[], :since::timestamptz[], :project::text[], :key::text[],
            :cause::text[]) AS p
ON CONFLICT (namespace, name) DO UPDATE
SET code = excluded.code, text = excluded.text, project = excluded.project, key = excluded.key,
    cause = excluded.cause, resolved_at = NULL,
    since = CASE WHEN a.resolved_at IS NULL THEN a.since ELSE excluded.since END,
    opened_at = CASE WHEN a.resolved_at IS NULL THEN a.opened_at ELSE excluded.opened_at END,
    due_at = CASE WHEN a.resolved_at IS NULL THEN a.due_at ELSE excluded.due_at END,
    attempts = CASE WHEN a.resolved_at IS NULL THEN a.attempts ELSE 0 END
-- Most looks find what they found before: those rows stay as they are.
WHERE a.resolved_at IS NOT NULL OR (a.text, a.cause) IS DISTINCT FROM (excluded.text, excluded.cause)
RETURNING a.*, a.opened_at = statement_timestamp() AS opened
