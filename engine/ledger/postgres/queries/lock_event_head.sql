-- A statement of its own: what the next one reads is what is committed once the lock is held. In one
-- statement with it, events that the holder before has placed would be placed again.
SELECT position FROM event_heads WHERE namespace = $1 FOR UPDATE SKIP LOCKED
