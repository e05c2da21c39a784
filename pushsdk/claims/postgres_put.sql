INSERT INTO {table} AS stored (key, token, record, expires)
SELECT key, token, record, clock_timestamp() + make_interval(secs => $5)
FROM unnest($1::text[], $2::text[], $3::text[]) AS put(key, token, record)
WHERE CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN set_config('synchronous_commit', 'on', true) = 'on' ELSE true END
ON CONFLICT (key) DO UPDATE SET token = excluded.token, record = excluded.record, expires = excluded.expires
WHERE stored.expires <= clock_timestamp() OR stored.token = excluded.token
    OR ((SELECT $4::text::jsonb) -> stored.key) ? stored.token
RETURNING key
