-- Once a minute is enough to see which tokens are in use; each request would be a row to vacuum.
UPDATE api_tokens SET used_at = clock_timestamp(), used_from = $3
WHERE namespace = $1 AND id = $2
  AND (used_at IS NULL OR used_at < clock_timestamp() - interval '1 minute' OR used_from IS DISTINCT FROM $3)
