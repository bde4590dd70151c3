-- What has waited in a queue is claimed, and nobody's: whichever replica has room sends it next.
UPDATE fires SET status = 'claimed', lease_until = clock_timestamp()
WHERE namespace = $1 AND id = ANY ($2::bigint[]) AND status = 'queued'
