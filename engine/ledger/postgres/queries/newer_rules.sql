SELECT count(*)::int AS schedules, max(rules) AS rules FROM schedules
WHERE namespace = $1 AND project = $2 AND retired_at IS NULL AND rules > $3
