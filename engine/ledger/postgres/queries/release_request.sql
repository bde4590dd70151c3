-- Its end is not known: the next one with this key finds out.
UPDATE api_requests SET claimed_until = clock_timestamp()
WHERE namespace = $1 AND caller = $2 AND route = $3 AND key = $4 AND claim = $5
