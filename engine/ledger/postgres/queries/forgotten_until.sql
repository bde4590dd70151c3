SELECT max(forgotten_until) AS forgotten_until FROM chores
WHERE namespace = $1 AND key IN (SELECT k.key FROM keys_of($1, $2) AS k)
