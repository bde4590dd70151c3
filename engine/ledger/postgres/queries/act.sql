INSERT INTO actions (namespace, project, key, verb, by, reason, workflow_id, before, after)
SELECT $1, a.project, a.key, a.verb, $2, a.reason, a.workflow_id, a.before::jsonb, a.after::jsonb
FROM unnest(:project::text[], :key::text[], :verb::text[], :reason::text[], :workflow_id::text[], :before::text[],
            :after::text[])
     AS a (project, key, verb, reason, workflow_id, before, after)
