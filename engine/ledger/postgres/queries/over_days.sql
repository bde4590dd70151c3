-- Rows whose windows span several days; only their definitions determine which.
SELECT f.project, f.status, f.series, f.fire_time, f.last_fire_time, f.windows, f.definition_version
FROM fires f
WHERE f.namespace = $1 AND f.key = $2 AND f.fire_time < $4 AND f.last_fire_time >= $3
  AND (f.fire_time AT TIME ZONE 'UTC')::date <> (f.last_fire_time AT TIME ZONE 'UTC')::date
