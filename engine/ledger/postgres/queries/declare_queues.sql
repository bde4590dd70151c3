-- A queue that another project has declared meanwhile stays its own: the primary key decides.
INSERT INTO queues AS q (namespace, queue, project, concurrency, per_key, rate, declared_by)
SELECT $1, d.queue, $2, d.concurrency, d.per_key, d.rate, $3
FROM unnest($4::text[], $5::int[], $6::int[], $7::text[]) AS d (queue, concurrency, per_key, rate)
ON CONFLICT (namespace, queue) DO UPDATE
SET concurrency = excluded.concurrency, per_key = excluded.per_key, rate = excluded.rate,
    declared_by = excluded.declared_by, declared_at = clock_timestamp(), dropped_at = NULL
WHERE q.project = excluded.project
