SELECT digest, claim, first_at, attempts, answer
FROM api_requests WHERE namespace = $1 AND caller = $2 AND route = $3 AND key = $4
