INSERT INTO definitions (namespace, key, version, series, project, definition, digest,
                         effective_from, applied_at, applied_by)
SELECT $1, n.key, n.version, n.series, n.project, n.definition::jsonb, n.digest, n.effective_from,
       clock_timestamp(), $2
FROM unnest(:schedule.key::text[], :version::int[], :series::int[], :project::text[], :definition::text[],
            :schedule.digest::text[], :effective_from::timestamptz[])
     AS n (key, version, series, project, definition, digest, effective_from)
