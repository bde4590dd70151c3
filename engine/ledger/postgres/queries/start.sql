-- A concurrent start of the same id waits here for this one to commit, and finds it then. Starts of
-- other ids share no lock with it.
INSERT INTO starts (namespace, workflow, start_id, digest, requested, project, task_queue, requested_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (namespace, workflow, start_id) DO NOTHING
RETURNING start_id
