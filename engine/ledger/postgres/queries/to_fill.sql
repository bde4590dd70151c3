-- Which new columns old rows still lack, and from which fire on they are filled. Of all namespaces.
SELECT version, filled_from FROM migrations
WHERE $1::text IS NOT NULL AND version = ANY ($2::int[]) AND filled_from IS DISTINCT FROM 0
ORDER BY version
