-- Downwards only: of two janitors at once, the one that came further is right.
UPDATE migrations SET filled_from = least(filled_from, $3)
WHERE $1::text IS NOT NULL AND version = $2
