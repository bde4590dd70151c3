WITH gone AS (
    DELETE FROM fires WHERE namespace = $1 AND id = ANY ($2::bigint[])
    RETURNING namespace, key, fire_time, last_fire_time)
DELETE FROM data_gaps g USING gone
WHERE g.namespace = gone.namespace AND g.key = gone.key
  AND g.fire_time BETWEEN gone.fire_time AND gone.last_fire_time
