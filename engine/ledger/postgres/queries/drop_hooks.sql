DELETE FROM subscriptions
WHERE namespace = $1 AND project = $2 AND origin = $3 AND kind = 'hook' AND NOT name = ANY ($4::text[])
