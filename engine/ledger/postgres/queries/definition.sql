SELECT definition FROM definitions WHERE namespace = $1 AND key IN (SELECT k.key FROM keys_of($1, $2) AS k) AND version = $3
