-- What keeps PostgreSQL from removing dead rows for longer than $1, if there are many of them. A
-- role without pg_read_all_stats sees no ages of others' sessions; then the name is NULL. The
-- catalog_xmin of a slot holds no rows of ours.
WITH dead AS (
    SELECT n_dead_tup AS rows FROM pg_stat_user_tables WHERE relid = 'positions'::regclass
), held AS (
    SELECT 'session' AS kind, a.pid::text AS name, a.application_name AS application,
           clock_timestamp() - a.xact_start AS age
    FROM pg_stat_activity a
    WHERE a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
      AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
      AND (a.datname = current_database() OR a.datname IS NULL)
      AND a.xact_start < clock_timestamp() - $1::interval
    UNION ALL
    SELECT 'prepared transaction', p.gid, p.owner::text, clock_timestamp() - p.prepared
    FROM pg_prepared_xacts p
    WHERE p.database = current_database() AND p.prepared < clock_timestamp() - $1::interval
    UNION ALL
    SELECT 'replication slot', r.slot_name::text, r.slot_type, NULL
    FROM pg_replication_slots r WHERE age(r.xmin) > 100000
)
SELECT held.kind, held.name, held.application, held.age, dead.rows AS dead_rows
FROM held CROSS JOIN dead WHERE dead.rows >= $2
UNION ALL
-- If every dead row is removed once a minute, there are never so many.
SELECT 'hidden session', NULL, NULL, NULL, dead.rows
FROM dead
WHERE dead.rows >= $2 * 100 AND NOT EXISTS (SELECT FROM held)
  AND NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
ORDER BY 1, 2
