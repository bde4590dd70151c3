-- What the janitor needs of each key to see whether it has work, with one index descent each.
SELECT s.key, s.series, p.cursor, d.definition, c.summarised_until, c.merged_until,
       c.settled_until, oldest.fire_time AS oldest, b.laying_after, b.laying_until
FROM schedules s
JOIN LATERAL position_of(s.namespace, s.key) AS p ON true
JOIN definitions d ON d.namespace = s.namespace AND d.key = s.key AND d.version = s.definition_version
LEFT JOIN chores c ON c.namespace = s.namespace AND c.key = s.key
LEFT JOIN LATERAL (
    SELECT f.fire_time FROM fires f WHERE f.namespace = s.namespace AND f.key = s.key
    ORDER BY f.fire_time LIMIT 1) AS oldest ON true
LEFT JOIN LATERAL (
    SELECT array_agg(b.cursor ORDER BY b.id) AS laying_after,
           array_agg(b.last ORDER BY b.id) AS laying_until
    FROM backfills b
    WHERE b.namespace = s.namespace AND b.key = s.key AND b.state = 'laying') AS b ON true
WHERE s.namespace = $1 AND s.key > $2
ORDER BY s.key LIMIT $3
