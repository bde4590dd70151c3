INSERT INTO definitions (namespace, key, version, series, project, definition, digest,
                         effective_from, applied_at, applied_by)
SELECT $1, n.key, n.version, n.series, n.project, n.definition::jsonb, n.digest, n.effective_from,
       clock_timestamp(), $2
FROM unnest($3::text[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[], $9::timestamptz[])
     AS n (key, version, series, project, definition, digest, effective_from)
