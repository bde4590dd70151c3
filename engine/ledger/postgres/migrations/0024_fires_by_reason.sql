-- beside: 10
-- The fires of one reason code, of all schedules and of one. The status stands in between:
-- of a million windows that were skipped for a dependency the few that are queued for one are found at
-- once.
CREATE INDEX CONCURRENTLY fires_by_reason
    ON fires (namespace, reason_code, status, fire_time DESC, id DESC)
    WHERE reason IS NOT NULL;
-- step
CREATE INDEX CONCURRENTLY fires_by_key_and_reason
    ON fires (namespace, key, reason_code, status, fire_time DESC, id DESC)
    WHERE reason IS NOT NULL;
