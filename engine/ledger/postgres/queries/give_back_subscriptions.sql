UPDATE subscription_positions SET holder = NULL, lease_until = NULL WHERE namespace = $1 AND holder = $2
