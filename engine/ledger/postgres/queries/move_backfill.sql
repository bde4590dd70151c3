UPDATE backfills
SET cursor = $3, state = $4, ended_reason = $5, next_at = $6, laid_at = $7, ended_at = $8,
    laid = $9, left_alone = $10::jsonb, error = $11
WHERE namespace = $1 AND id = $2 AND state = 'laying'
