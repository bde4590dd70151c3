DELETE FROM subscriptions WHERE namespace = $1 AND expires_at <= (SELECT clock_timestamp())
