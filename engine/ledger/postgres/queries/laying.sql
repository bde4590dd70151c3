-- Every range that is still to be laid, of any key.
SELECT * FROM backfills WHERE namespace = $1 AND state = 'laying' ORDER BY key, first
