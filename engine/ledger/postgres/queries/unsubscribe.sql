DELETE FROM subscriptions WHERE namespace = $1 AND name = $2 RETURNING name
