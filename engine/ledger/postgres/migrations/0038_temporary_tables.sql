-- beside: 10
-- A trigger runs in the session of whoever writes, an application that joins its transaction among them. A search
-- path that does not name pg_temp begins with it: a temporary table named like one of ours would be taken for it.
DO $$
DECLARE
    of_ours regprocedure;
BEGIN
    FOR of_ours IN
        SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND array_to_string(p.proconfig, ' ') LIKE '%search\_path=%'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_catalog, pg_temp', of_ours, current_schema());
    END LOOP;
END $$;
