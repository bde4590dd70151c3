SELECT DISTINCT key FROM deliveries
WHERE namespace = $1 AND subscription = $2 AND due_at IS NOT NULL AND attempts <= 1
