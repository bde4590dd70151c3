-- Takes a new request, one older than $8, or one whose process ended without an answer. No row: another has it, or
-- it was answered, or its digest differs; request_of.sql says which.
INSERT INTO api_requests AS r (namespace, caller, route, key, digest, claim, claimed_until)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::interval)
ON CONFLICT (namespace, caller, route, key) DO UPDATE
SET digest = excluded.digest, claim = excluded.claim, claimed_until = excluded.claimed_until, answer = NULL,
    attempts = CASE WHEN r.first_at < clock_timestamp() - $8::interval THEN 1 ELSE r.attempts + 1 END,
    first_at = CASE WHEN r.first_at < clock_timestamp() - $8::interval THEN excluded.first_at ELSE r.first_at END
WHERE r.first_at < clock_timestamp() - $8::interval
   OR (r.answer IS NULL AND r.claimed_until <= clock_timestamp() AND r.digest = excluded.digest)
RETURNING r.digest, r.claim, r.first_at, r.attempts, r.answer
