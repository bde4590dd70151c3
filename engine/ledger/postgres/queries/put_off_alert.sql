UPDATE alerts SET error = $4, due_at = clock_timestamp() + $5::interval
WHERE namespace = $1 AND name = $2 AND resolved_at IS NOT DISTINCT FROM $3::timestamptz
