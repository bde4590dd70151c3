-- beside: 10
-- What is read of a key, or of a status, lies together: no statement walks through the whole ledger.
-- With the id at its end the order of this index is total. Without it the planner took the index over
-- all keys, whose order was, and left out a million rows of others.
CREATE INDEX CONCURRENTLY fires_by_key ON fires (namespace, key, fire_time DESC, id DESC);
-- step
DROP INDEX CONCURRENTLY fires_of_key;
-- step
-- Only what an ordinary run never is, so that one costs nothing here. What is claimed, starting or
-- started is found by `fires_in_the_way`, and what is completed nearly everywhere.
CREATE INDEX CONCURRENTLY fires_by_status ON fires (namespace, status, fire_time DESC, id DESC)
    WHERE status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped',
                     'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL;
-- step
CREATE INDEX CONCURRENTLY fires_by_key_and_status ON fires (namespace, key, status, fire_time DESC, id DESC)
    WHERE status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped',
                     'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL;
-- step
-- A run that Temporal has lost is never looked at again, and would be read first each time.
CREATE INDEX CONCURRENTLY fires_to_look_at ON fires (namespace, seen_at NULLS FIRST)
    WHERE status = 'started' AND lost_at IS NULL;
-- step
DROP INDEX CONCURRENTLY fires_open;
