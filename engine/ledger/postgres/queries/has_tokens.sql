SELECT EXISTS (SELECT FROM api_tokens WHERE namespace = $1) AS found
