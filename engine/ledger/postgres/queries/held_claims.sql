-- How many claims each replica holds. Of the first $2 alone: after an outage there may be many.
SELECT owner, count(*) AS claims FROM (
    SELECT owner FROM fires
    WHERE namespace = $1 AND status IN ('claimed', 'starting') AND lost_at IS NULL AND owner IS NOT NULL
    LIMIT $2) AS held
GROUP BY owner
