UPDATE schedules SET next_fire_at = $3 WHERE namespace = $1 AND key = $2
