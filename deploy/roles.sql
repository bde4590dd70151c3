-- The roles of docs/deploy.md, with passwords from the environment. PostgreSQL's image runs this
-- file with psql, as superuser, when its volume is new.
\getenv owner_password SCHED_DB_OWNER_PASSWORD
\getenv worker_password SCHED_DB_PASSWORD
CREATE ROLE sched_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE sched_worker LOGIN PASSWORD :'worker_password';
CREATE SCHEMA sched AUTHORIZATION sched_owner;
GRANT USAGE ON SCHEMA sched TO sched_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE sched_owner IN SCHEMA sched
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO sched_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE sched_owner IN SCHEMA sched
    GRANT EXECUTE ON FUNCTIONS TO sched_worker;
GRANT pg_read_all_stats TO sched_worker;

-- The tables of the example that comes with the engine.
CREATE SCHEMA example AUTHORIZATION sched_worker;
