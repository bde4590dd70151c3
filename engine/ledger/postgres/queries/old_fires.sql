-- `version` changes with every write to a row, so that only the row that was archived is removed.
-- All rows, or (:asked_for) requested ones only; see list_schedules.sql.
SELECT f.id, f.version, f.project, f.series, f.bucket, f.fire_time, f.last_fire_time,
       f.windows, f.kind, f.definition_version, f.workflow_type, f.task_queue, f.status, f.reason,
       f.reason_code, f.timing, f.missed, f.merged_at,
       f.error IS NOT NULL OR f.history <> '[]' OR f.input IS NOT NULL OR f.sealed_input IS NOT NULL
           AS has_details,
       greatest(f.last_fire_time, f.decided_at, f.closed_at) AS rested_since,
       (to_jsonb(f) - '{version,owner,token,lease_until,seen_at,open_at,stop_at,stop_grace,stop_asked_at,failing,counted}'::text[])::text AS detail
FROM (
    SELECT xmin::text AS version, * FROM fires
    WHERE namespace = $1 AND key = :key AND fire_time >= :since AND fire_time < :until
      AND kind <> 'window' AND :asked_for::bool
    ORDER BY fire_time, id LIMIT :limit) AS f
ORDER BY f.fire_time, f.id
