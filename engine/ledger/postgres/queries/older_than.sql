-- Whether a replica of code from before this migration lives, or did so a moment ago, in any namespace:
-- all of them share what is raised by seal_project.sql.
SELECT EXISTS (
    SELECT 1 FROM replicas
    WHERE $1::text IS NOT NULL AND (schema_version IS NULL OR schema_version < $2)
      AND seen_at > clock_timestamp() - interval '5 minutes') AS live
