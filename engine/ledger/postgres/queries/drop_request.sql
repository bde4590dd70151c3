-- It was refused, so nothing happened: the same key may try again.
DELETE FROM api_requests WHERE namespace = $1 AND caller = $2 AND route = $3 AND key = $4 AND claim = $5
