UPDATE api_requests SET answer = $6
WHERE namespace = $1 AND caller = $2 AND route = $3 AND key = $4 AND claim = $5
