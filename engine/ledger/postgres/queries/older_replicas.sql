-- Whether a replica lives that says nothing of positions, or did so a moment ago.
SELECT EXISTS (
    SELECT 1 FROM replicas WHERE namespace = $1 AND schema_version IS NULL
      AND seen_at > clock_timestamp() - interval '5 minutes') AS live
