UPDATE backfills
SET cursor = :cursor, state = :state, ended_reason = :ended_reason, next_at = :next_at, laid_at = :laid_at,
    ended_at = :ended_at, laid = :laid, left_alone = :left_alone::jsonb, error = :error
WHERE namespace = $1 AND id = $2 AND state = 'laying'
