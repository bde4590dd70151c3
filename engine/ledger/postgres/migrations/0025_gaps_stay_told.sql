-- beside: 10
-- A window that was told as a gap, and whose next attempt is denied as well, stays told: it never had a run
-- in between. Before, the gap was missing from the list until it was looked at and told once more.

CREATE OR REPLACE FUNCTION note_denied() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO data_gaps (namespace, key, fire_time, bucket)
    VALUES (NEW.namespace, NEW.key, NEW.fire_time, NEW.bucket)
    ON CONFLICT (namespace, key, fire_time) DO UPDATE SET noted_at = clock_timestamp();
    RETURN NULL;
END $$;
