-- A concurrent start of the same id waits here for this one to commit, and finds it then. Starts of
-- other ids share no lock with it.
INSERT INTO starts (namespace, workflow, start_id, digest, requested, project, task_queue, requested_by)
VALUES ($1, :workflow, :start_id, :digest, :requested, :project, :task_queue, :requested_by)
ON CONFLICT (namespace, workflow, start_id) DO NOTHING
RETURNING start_id
