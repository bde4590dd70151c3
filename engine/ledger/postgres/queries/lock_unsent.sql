-- Those of these fires whose send has not begun, locked so that no sweeper begins it before this
-- transaction ends. In ID order, like every statement that locks several.
SELECT id FROM fires
WHERE namespace = $1 AND id = ANY ($2::bigint[]) AND status IN ('claimed', 'queued')
ORDER BY id FOR UPDATE
