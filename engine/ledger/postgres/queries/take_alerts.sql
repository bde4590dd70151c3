-- A time, not a row lock: the receiver may take its time to answer, and the sender may die.
UPDATE alerts a SET due_at = clock_timestamp() + $3::interval, attempts = a.attempts + 1
FROM (
    SELECT name FROM alerts
    WHERE namespace = $1 AND due_at <= (SELECT clock_timestamp())
    ORDER BY due_at LIMIT $2
    FOR UPDATE SKIP LOCKED) AS due
WHERE a.namespace = $1 AND a.name = due.name
RETURNING a.*
