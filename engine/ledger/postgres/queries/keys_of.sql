SELECT k.key FROM keys_of($1, $2) AS k
