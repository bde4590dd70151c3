INSERT INTO retentions (namespace, retention, seen_until) VALUES ($1, $2, clock_timestamp())
ON CONFLICT (namespace, retention) DO UPDATE
SET seen_until = greatest(retentions.seen_until, excluded.seen_until)
