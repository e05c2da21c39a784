CREATE TABLE IF NOT EXISTS {table} (
    key text PRIMARY KEY,
    token text NOT NULL,
    record text NOT NULL,
    expires timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (expires);
