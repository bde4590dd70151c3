-- The window stays undecided and the cursor where it was: nothing is lost, only delayed.
UPDATE schedules
SET failures = failures + 1, error = $3,
    next_fire_at = clock_timestamp() + least(power(2, least(failures, 10)), 300) * interval '1 second'
WHERE namespace = $1 AND key = $2 AND successor IS NULL
