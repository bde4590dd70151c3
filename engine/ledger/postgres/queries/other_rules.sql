SELECT DISTINCT tzdata FROM replicas
WHERE namespace = $1 AND project = $2 AND tzdata <> $3
  AND seen_at > (SELECT clock_timestamp()) - greatest($4::interval, heartbeat * 3)
ORDER BY tzdata
