-- The tables of the emulator's store.
CREATE TABLE store(
    salt BLOB NOT NULL,                      -- of these digests
    bytes INTEGER NOT NULL);                 -- of all bodies
INSERT INTO store VALUES (randomblob(32), 0);
CREATE TABLE inboxes(
    id INTEGER PRIMARY KEY AUTOINCREMENT,    -- never reused, so a request in flight during a reset finds no inbox
    name TEXT NOT NULL UNIQUE,               -- a digest of the Api-Key
    label TEXT NOT NULL,
    requests INTEGER NOT NULL DEFAULT 0,     -- stored ones
    bytes INTEGER NOT NULL DEFAULT 0);       -- of their bodies
CREATE TABLE requests(
    id INTEGER PRIMARY KEY AUTOINCREMENT,    -- never reused, so a position in the list stays valid
    inbox INTEGER NOT NULL REFERENCES inboxes ON DELETE CASCADE,
    time REAL NOT NULL,
    endpoint TEXT,
    status INTEGER,
    accepted INTEGER NOT NULL,
    fault TEXT,
    error TEXT,
    users INTEGER NOT NULL,
    campaign TEXT,                           -- the uuid of an accepted campaign
    bytes INTEGER NOT NULL,
    preview BLOB NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    langs TEXT NOT NULL,
    first INTEGER,                           -- null for a request that is the oldest of its group
    "group" INTEGER AS (coalesce(first, id)), -- the oldest of consecutive pushes with the same texts
    body BLOB NOT NULL);
CREATE INDEX requests_of_inbox ON requests(inbox, id, bytes);
CREATE INDEX groups ON requests("group");
CREATE INDEX groups_of_inbox ON requests(inbox, "group");
CREATE TRIGGER added AFTER INSERT ON requests BEGIN
    UPDATE inboxes SET requests = requests + 1, bytes = bytes + new.bytes WHERE id = new.inbox;
    UPDATE store SET bytes = bytes + new.bytes;
END;
CREATE TRIGGER dropped AFTER DELETE ON requests BEGIN
    UPDATE inboxes SET requests = requests - 1, bytes = bytes - old.bytes WHERE id = old.inbox;
    UPDATE store SET bytes = bytes - old.bytes;
END;
CREATE TABLE received(                       -- accepted pushes of each user; outlives the request
    inbox INTEGER NOT NULL REFERENCES inboxes ON DELETE CASCADE,
    stem TEXT NOT NULL,                      -- of the user id, without the digits at its end
    length INTEGER NOT NULL,                 -- of the user id: the key sorts users as people count, u2 before u10
    digits TEXT NOT NULL,
    digest INTEGER NOT NULL,                 -- of the content, see PushBody.digest
    request INTEGER NOT NULL,
    times INTEGER NOT NULL,
    user TEXT AS (stem || digits),
    PRIMARY KEY(inbox, stem, length, digits, digest, request)) WITHOUT ROWID;
