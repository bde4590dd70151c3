-- beside: 10
-- Writers give each reason with its code now. The triggers stay for those that give a sentence alone; of a
-- sentence that they do not know they keep the code beside it.

CREATE OR REPLACE FUNCTION derive_reason_code() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.reason_code := coalesce(reason_code_of(NEW.reason), CASE WHEN NEW.reason IS NOT NULL THEN NEW.reason_code END);
    RETURN NEW;
END $$;
