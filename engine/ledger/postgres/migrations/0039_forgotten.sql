-- beside: 10
-- Projects that are no more: lists leave their retired schedules out. The rows stay, and their series.

ALTER TABLE projects ADD COLUMN forgotten_at timestamptz;
COMMENT ON COLUMN projects.forgotten_at IS 'Since when lists leave out its retired schedules; null again once a file of the project is applied.';
