SELECT count(*) AS living FROM schedules WHERE namespace = $1 AND project = $2 AND retired_at IS NULL
