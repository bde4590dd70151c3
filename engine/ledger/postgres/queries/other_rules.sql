SELECT DISTINCT tzdata FROM replicas
WHERE namespace = $1 AND project = $2 AND tzdata <> $3
  AND seen_at > (SELECT clock_timestamp()) - $4::interval
ORDER BY tzdata
