-- Fires that are open where no window is claimed any more are counted, up to $2.
SELECT b.number, b.namespace_id, b.place, b.current, b.bound_at, b.bound_by, b.closed_at,
       CASE WHEN b.current OR b.closed_at IS NOT NULL THEN 0
            ELSE (SELECT count(*) FROM (
                SELECT FROM fires f
                WHERE f.namespace = $1 AND f.binding = b.number AND f.lost_at IS NULL
                  AND f.status IN ('claimed', 'starting', 'started')
                  AND (f.status <> 'claimed' OR f.kind = 'handler')
                LIMIT $2) AS counted) END AS open
FROM bindings b WHERE b.namespace = $1 ORDER BY b.number
