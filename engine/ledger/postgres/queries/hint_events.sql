-- Of a deliverer's transaction, which no tick waits for. What wakes replicas is the namespace alone.
SELECT pg_notify(current_schema(), 'events:' || $1)
