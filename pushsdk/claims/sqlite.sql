CREATE TABLE IF NOT EXISTS claims(
    key TEXT PRIMARY KEY,
    token TEXT NOT NULL,
    record BLOB NOT NULL,
    expires REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claims_by_expiry ON claims(expires);
