-- Migrations whose columns old rows lack, of all namespaces, and from which fire they are filled.
SELECT version, filled_from FROM migrations
WHERE $1::text IS NOT NULL AND version = ANY ($2::int[]) AND filled_from IS DISTINCT FROM 0
ORDER BY version
