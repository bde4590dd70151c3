-- A row with an expiry, not a session lock, which a suspended process never releases.
INSERT INTO duties AS d (namespace, duty, holder, expires_at)
VALUES ($1, $2, $3, clock_timestamp() + $4::interval)
ON CONFLICT (namespace, duty) DO UPDATE
SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE d.holder = excluded.holder OR d.expires_at < clock_timestamp()
RETURNING coalesce(d.watermark, 'epoch'::timestamptz) AS watermark
