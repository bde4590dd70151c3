-- beside: 10
-- Open runs by when somebody saw them last. Those that nobody had seen yet stood together at the end of
-- their index, in no order, and beside an old snapshot all that ever began were walked for the next.

-- step
CREATE INDEX CONCURRENTLY fires_unseen ON fires (namespace, (coalesce(seen_at, started_at)))
    WHERE status = 'started' AND lost_at IS NULL;

-- step
DROP INDEX CONCURRENTLY fires_to_look_at;
