-- Wakes the replicas of this schema once this transaction has committed; only for what somebody
-- asked for. A commit that notifies waits for all others that do, so a tick never says anything.
SELECT pg_notify(current_schema(), $1)
