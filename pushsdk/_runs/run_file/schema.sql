-- Row 1: the header, and the seal once the plan is complete. Row 2: the notes.
CREATE TABLE meta (id INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);
-- One row: number and checksum of the log's last row, to detect its loss.
CREATE TABLE head (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, crc INTEGER NOT NULL);
-- Several chunks per row; `first` is the number of the row's first chunk.
CREATE TABLE plan (first INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);
-- The events of one commit per row; the crc continues the crc of the row before.
CREATE TABLE log (seq INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);
