-- For locked schedules and their former keys. Decided fires that have not ended move along, or no replica would sweep
-- them; ended ones stay where they happened. Triggers move the positions. The old project's file no
-- longer counts as applied, or it would seem unchanged when it declares these keys again.
WITH theirs AS (
    SELECT k.key FROM unnest($2::text[]) AS g (key) CROSS JOIN LATERAL keys_of($1, g.key) AS k),
moved AS (
    UPDATE schedules SET project = $4, absent_since = NULL
    WHERE namespace = $1 AND key IN (SELECT t.key FROM theirs t) AND project = $3),
laying AS (
    UPDATE backfills SET project = $4
    WHERE namespace = $1 AND key = ANY ($2::text[]) AND state = 'laying'),
left_by_them AS (
    UPDATE projects SET file_digest = '' WHERE namespace = $1 AND project = $3)
UPDATE fires SET project = $4
WHERE namespace = $1 AND key IN (SELECT t.key FROM theirs t)
  AND status IN ('claimed', 'queued', 'starting', 'started') AND lost_at IS NULL
