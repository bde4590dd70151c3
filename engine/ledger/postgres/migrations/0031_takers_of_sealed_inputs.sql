-- beside: 10
-- Code of before 0029 that lives although nothing showed it when the first input was sealed (it had just
-- started, or was suspended) would start a run without its own input. The row passes it by.

ALTER TABLE fires ADD COLUMN sealed_for text;
COMMENT ON COLUMN fires.sealed_for IS 'The replica that took the fire over and reads sealed_input.';

CREATE FUNCTION pass_by() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;

-- step
CREATE TRIGGER sealed_inputs_are_read BEFORE UPDATE OF status ON fires FOR EACH ROW
    WHEN (NEW.sealed_input IS NOT NULL AND NEW.status = 'starting'
          AND NEW.owner IS NOT NULL AND NEW.owner IS DISTINCT FROM NEW.sealed_for)
    EXECUTE FUNCTION pass_by();
