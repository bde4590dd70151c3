-- beside: 10
-- Who may use the API, and what was answered to requests that may be repeated.

CREATE TABLE api_tokens (
    namespace   text NOT NULL,
    id          text NOT NULL,
    name        text NOT NULL,
    scope       text NOT NULL CHECK (scope IN ('read', 'operate', 'admin')),
    keys        text[] NOT NULL CHECK (cardinality(keys) > 0),
    digest      text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by  text NOT NULL,
    expires_at  timestamptz,
    revoked_at  timestamptz,
    revoked_by  text,
    used_at     timestamptz,
    used_from   text,
    PRIMARY KEY (namespace, id)
);
COMMENT ON TABLE api_tokens IS 'Tokens of the API, those that were revoked too. The secret itself is nowhere.';
COMMENT ON COLUMN api_tokens.digest IS 'SHA-256 of the whole token, in hex.';
COMMENT ON COLUMN api_tokens.keys IS 'Schedules that it is for: whole keys, with * for any text and ? for one character.';
CREATE UNIQUE INDEX api_tokens_by_name ON api_tokens (namespace, name) WHERE revoked_at IS NULL;

-- step
CREATE TABLE api_requests (
    namespace      text NOT NULL,
    caller         text NOT NULL,
    route          text NOT NULL,
    key            text NOT NULL,
    digest         text NOT NULL,
    claim          uuid NOT NULL,
    claimed_until  timestamptz NOT NULL,
    first_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts       integer NOT NULL DEFAULT 1,
    answer         text,
    PRIMARY KEY (namespace, caller, route, key)
);
COMMENT ON TABLE api_requests IS 'Requests with an Idempotency-Key of the last 24 hours.';
COMMENT ON COLUMN api_requests.digest IS 'Keyed digest of path, query and body; the key is the secret of the caller''s token.';
COMMENT ON COLUMN api_requests.answer IS 'What was answered; null while the request is in work, or if its end is not known.';
CREATE INDEX api_requests_by_age ON api_requests (namespace, first_at);
