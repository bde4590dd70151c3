-- $4 are schedules that have just failed; NULL: the receiver accepts nothing at all. Without a bound, what is
-- declared to be tried about a day would wait for as long as the attempts before it take.
UPDATE deliveries SET due_at = NULL, dead_at = clock_timestamp(), error = $3
WHERE namespace = $1 AND subscription = $2 AND due_at IS NOT NULL
  AND first_at < (SELECT clock_timestamp()) - interval '1 day'
  AND ($4::text[] IS NULL OR (attempts = 0 AND key = ANY ($4)))
RETURNING position
