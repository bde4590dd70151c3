-- A key that was locked when it was to be woken. Waits for the lock.
UPDATE schedules SET next_fire_at = clock_timestamp()
WHERE namespace = $1 AND key = $2 AND paused_at IS NULL AND retired_at IS NULL AND enabled
RETURNING key
