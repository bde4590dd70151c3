-- Wake the replicas of this schema once this transaction commits; only for requests. Commits that
-- notify wait for each other, so a tick never notifies.
SELECT pg_notify(current_schema(), $1)
