-- Of locked schedules. What is decided and has not ended goes along, or nobody would sweep it; what has
-- ended stays where it happened. Triggers move the positions. The file of the project that they leave
-- is applied no more, or it would be taken for unchanged when it wants them back.
WITH moved AS (
    UPDATE schedules SET project = $4, absent_since = NULL
    WHERE namespace = $1 AND key = ANY ($2::text[]) AND project = $3),
laying AS (
    UPDATE backfills SET project = $4
    WHERE namespace = $1 AND key = ANY ($2::text[]) AND state = 'laying'),
left_by_them AS (
    UPDATE projects SET file_digest = '' WHERE namespace = $1 AND project = $3)
UPDATE fires SET project = $4
WHERE namespace = $1 AND key = ANY ($2::text[])
  AND status IN ('claimed', 'queued', 'starting', 'started') AND lost_at IS NULL
