-- Rows of one window each, by outcome, for each span. Ranges are few and are counted by their
-- definitions. Each span is read by itself: a join would read all rows that the key ever had.
SELECT s.number, found.* FROM unnest($3::timestamptz[], $4::timestamptz[]) WITH ORDINALITY AS s (after, until, number)
CROSS JOIN LATERAL (
    SELECT CASE WHEN k.key = $2 THEN f.status ELSE 'former_key' END AS status,
           CASE WHEN k.key = $2 THEN f.reason_code END AS reason_code, count(*) AS windows
    FROM keys_of($1, $2) AS k JOIN fires f ON f.namespace = $1 AND f.key = k.key
    WHERE f.kind = 'window' AND f.windows = 1
      AND f.fire_time > s.after AND f.fire_time <= s.until
    GROUP BY 1, 2) AS found
