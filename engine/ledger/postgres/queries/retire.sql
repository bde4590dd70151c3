UPDATE schedules SET retired_at = $3, next_fire_at = NULL, absent_since = NULL
WHERE namespace = $1 AND key = ANY ($2::text[]) AND retired_at IS NULL
