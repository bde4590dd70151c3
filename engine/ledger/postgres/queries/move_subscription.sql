-- Only its holder moves it, and never back.
UPDATE subscription_positions SET position = greatest(position, $4)
WHERE namespace = $1 AND name = $2 AND holder = $3
RETURNING name
