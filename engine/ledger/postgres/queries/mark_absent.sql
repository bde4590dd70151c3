UPDATE schedules
SET absent_since = CASE WHEN key = ANY ($3::text[]) THEN coalesce(absent_since, $4) END
WHERE namespace = $1 AND project = $2 AND retired_at IS NULL
  AND (key = ANY ($3::text[]) OR absent_since IS NOT NULL)
RETURNING key, absent_since
