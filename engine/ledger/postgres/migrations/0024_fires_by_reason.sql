-- beside: 10
-- The fires of one reason code, of all schedules and of one, also those from before the column. The
-- status stands in between: of a million windows that were skipped for a dependency the few that are
-- queued for one are found at once.
CREATE INDEX CONCURRENTLY fires_by_reason
    ON fires (namespace, coalesce(reason_code, reason_code_of(reason)), status, fire_time DESC, id DESC)
    WHERE reason IS NOT NULL;
-- step
CREATE INDEX CONCURRENTLY fires_by_key_and_reason
    ON fires (namespace, key, coalesce(reason_code, reason_code_of(reason)), status, fire_time DESC, id DESC)
    WHERE reason IS NOT NULL;
