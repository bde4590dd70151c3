-- Which schedules of the file that was applied last were refused.

ALTER TABLE projects ADD COLUMN refused text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN projects.refused IS 'Keys of the file that were not applied. While there are any, the same file is applied again.';
