-- One row.
CREATE TABLE header (data BLOB NOT NULL, crc INTEGER NOT NULL);
-- One row: number and checksum of the log's last row, to detect its loss. The number is 0 until the plan is sealed.
CREATE TABLE head (seq INTEGER NOT NULL, crc INTEGER NOT NULL);
-- Several chunks per row; `first` is the number of the row's first chunk.
CREATE TABLE plan (first INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);
-- One row: the notes, whose crc is in the log. Empty until the plan is sealed.
CREATE TABLE notes (data BLOB NOT NULL);
-- The events of one commit per row, and the crc of its notes if any; the crc continues the crc of the row before.
CREATE TABLE log (seq INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);
