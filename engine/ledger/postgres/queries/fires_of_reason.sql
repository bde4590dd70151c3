-- The newest fires of a reason code ($2) and of these statuses ($4), of a key ($3) where one is given.
-- Each status is read in the order of its index, so that none with many rows hides one with few.
-- Only one branch runs.
SELECT * FROM (
    (SELECT found.* FROM unnest($4::text[]) AS wanted (status) CROSS JOIN LATERAL
        (SELECT * FROM fire_history
         WHERE $3::text IS NULL AND namespace = $1 AND reason_code = $2 AND reason IS NOT NULL
           AND status = wanted.status
         ORDER BY fire_time DESC, key LIMIT $5) AS found)
    UNION ALL
    (SELECT found.* FROM unnest($4::text[]) AS wanted (status) CROSS JOIN LATERAL
        (SELECT * FROM fire_history
         WHERE namespace = $1 AND key = $3 AND reason_code = $2 AND reason IS NOT NULL
           AND status = wanted.status
         ORDER BY fire_time DESC, key LIMIT $5) AS found)) AS found
ORDER BY fire_time DESC, key LIMIT $5
