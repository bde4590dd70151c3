-- beside: 10
-- A trigger runs in the session of whoever writes, an application that joins its transaction among them. A search
-- path that does not name pg_temp begins with it: a temporary table named like one of ours would be taken for it.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_catalog, pg_temp', true);
ALTER FUNCTION keep_line() SET search_path FROM CURRENT;
ALTER FUNCTION fix_data_from() SET search_path FROM CURRENT;
ALTER FUNCTION derive_reason_code() SET search_path FROM CURRENT;
ALTER FUNCTION note_denied() SET search_path FROM CURRENT;
ALTER FUNCTION add_positions() SET search_path FROM CURRENT;
ALTER FUNCTION move_position() SET search_path FROM CURRENT;
ALTER FUNCTION write_events_of_new_fires() SET search_path FROM CURRENT;
ALTER FUNCTION write_events_of_fires() SET search_path FROM CURRENT;
ALTER FUNCTION write_events_of_new_schedules() SET search_path FROM CURRENT;
ALTER FUNCTION write_events_of_schedule() SET search_path FROM CURRENT;
ALTER FUNCTION refuse_cursor_going_back() SET search_path FROM CURRENT;
ALTER FUNCTION refuse_position(text, timestamptz, timestamptz) SET search_path FROM CURRENT;
ALTER FUNCTION pass_by() SET search_path FROM CURRENT;
