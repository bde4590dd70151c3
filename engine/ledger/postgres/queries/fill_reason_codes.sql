-- The $3 fires below an ID, newest first, because those are read most. A trigger sets the code of
-- newer rows. A locked row is skipped and filled later, so that nothing waits for it.
WITH looked_at AS MATERIALIZED (
    SELECT id, reason_code IS NULL AND reason_code_of(reason) IS NOT NULL AS lacks FROM fires
    WHERE $1::text IS NOT NULL AND id < coalesce($2::bigint, 9223372036854775807) ORDER BY id DESC LIMIT $3
), free AS MATERIALIZED (
    -- As an array: for a join the planner expects as many rows as the limit allows.
    SELECT f.id FROM fires f WHERE f.id = ANY (ARRAY(SELECT l.id FROM looked_at l WHERE l.lacks))
    ORDER BY f.id FOR UPDATE SKIP LOCKED
), filled AS (
    UPDATE fires f SET reason_code = reason_code_of(f.reason) FROM free WHERE f.id = free.id
    RETURNING f.id
)
SELECT coalesce(min(id), 0) AS lowest, count(*) AS looked_at, (SELECT count(*) FROM filled) AS filled,
       count(*) FILTER (WHERE lacks) > (SELECT count(*) FROM filled) AS held
FROM looked_at
