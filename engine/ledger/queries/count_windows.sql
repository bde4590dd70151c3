-- Rows of one window each, by what became of them, in each of some spans. Ranges are few, and counted by
-- their definitions.
SELECT s.number, f.status, coalesce(f.reason_code, reason_code_of(f.reason)) AS reason_code,
       count(*) AS windows
FROM unnest($3::timestamptz[], $4::timestamptz[]) WITH ORDINALITY AS s (after, until, number)
JOIN fires f ON f.namespace = $1 AND f.key = $2 AND f.kind = 'window' AND f.windows = 1
            AND f.fire_time > s.after AND f.fire_time <= s.until
GROUP BY 1, 2, 3
