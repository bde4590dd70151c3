-- Forward only: of two janitors at once, the one that came further is right.
INSERT INTO chores AS c (namespace, key, summarised_until, merged_until, settled_until, forgotten_until)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (namespace, key) DO UPDATE
SET summarised_until = greatest(c.summarised_until, excluded.summarised_until),
    merged_until = greatest(c.merged_until, excluded.merged_until),
    settled_until = greatest(c.settled_until, excluded.settled_until),
    forgotten_until = greatest(c.forgotten_until, excluded.forgotten_until)
