-- A cursor speaks of the windows of one series. A new one may begin before it: newer zone rules can
-- put the cursor of a cron ahead of the clock, and what is an interval from now on is owed at once.
CREATE OR REPLACE TRIGGER cursor_moves_forward BEFORE UPDATE OF cursor ON schedules
    FOR EACH ROW WHEN (NEW.cursor < OLD.cursor AND NEW.series = OLD.series)
    EXECUTE FUNCTION refuse_cursor_going_back();
COMMENT ON COLUMN schedules.cursor IS 'Every window of the series at or before it is decided. Within a series it moves forward only.';
