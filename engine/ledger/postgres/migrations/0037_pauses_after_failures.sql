-- beside: 10
-- The few schedules that are paused after failures, as definitions_with_alert.
CREATE INDEX CONCURRENTLY definitions_paused_after_failures ON definitions (namespace, key, version)
    WHERE definition ? 'pauseAfterFailures';
