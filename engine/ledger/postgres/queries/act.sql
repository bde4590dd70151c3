INSERT INTO actions (namespace, project, key, verb, by, reason, workflow_id, before, after)
SELECT $1, a.project, a.key, a.verb, $2, a.reason, a.workflow_id, a.before::jsonb, a.after::jsonb
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
     AS a (project, key, verb, reason, workflow_id, before, after)
