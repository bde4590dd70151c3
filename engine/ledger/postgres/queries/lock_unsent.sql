-- Those of these fires that nobody has begun to send: locked, so that no sweeper begins to before this
-- transaction ends. In the order of their ids, as whoever locks several.
SELECT id FROM fires
WHERE namespace = $1 AND id = ANY ($2::bigint[]) AND status IN ('claimed', 'queued')
ORDER BY id FOR UPDATE
