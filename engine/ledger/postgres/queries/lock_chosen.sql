-- Keys that due_by_share.sql has found. One that has moved since is not there under its time. Nothing is due
-- while another binding than $3 is current.
SELECT s.key
FROM unnest(:key::text[], :lane::text[], :share::text[], :due_at::timestamptz[]) AS chosen (key, lane, share, due_at)
JOIN positions p ON p.namespace = $1 AND p.project = $2 AND p.lane = chosen.lane
     AND p.share = chosen.share AND p.due_at = chosen.due_at AND p.key = chosen.key
JOIN schedules s ON s.namespace = p.namespace AND s.key = p.key
WHERE (SELECT NOT EXISTS (SELECT FROM bindings b WHERE b.namespace = $1 AND b.current AND b.number <> $3))
FOR UPDATE OF s, p SKIP LOCKED
