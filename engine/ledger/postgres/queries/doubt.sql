-- Values that the database withholds ($1, $2) keep their old ones. Writes only on a change.
UPDATE ledger
SET system = coalesce($1, system), timeline = coalesce($2, timeline),
    doubted_at = CASE WHEN $3 THEN clock_timestamp() ELSE doubted_at END
WHERE $3 OR system IS DISTINCT FROM coalesce($1, system)
   OR timeline IS DISTINCT FROM coalesce($2, timeline)
