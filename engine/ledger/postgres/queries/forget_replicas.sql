-- Not those that write their row now: two that were suspended for a day would wait for each other.
WITH old AS (
    SELECT replica FROM replicas
    WHERE namespace = $1 AND seen_at < (SELECT clock_timestamp()) - interval '1 day'
    FOR UPDATE SKIP LOCKED)
DELETE FROM replicas r USING old WHERE r.namespace = $1 AND r.replica = old.replica
