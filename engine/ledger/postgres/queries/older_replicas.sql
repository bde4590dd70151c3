-- Whether a replica that does not announce positions lives, or did so a moment ago.
SELECT EXISTS (
    SELECT 1 FROM replicas WHERE namespace = $1 AND schema_version IS NULL
      AND seen_at > clock_timestamp() - interval '5 minutes') AS live
