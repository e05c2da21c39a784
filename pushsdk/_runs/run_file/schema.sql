-- One row.
CREATE TABLE header (data BLOB NOT NULL, crc INTEGER NOT NULL);
-- One row: number and checksum of the log's last row, to detect its loss. The number is 0 until the plan is sealed.
CREATE TABLE head (seq INTEGER NOT NULL, crc INTEGER NOT NULL);
-- Several chunks per row; `first` is the number of the row's first chunk.
CREATE TABLE plan (first INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);
-- The events and the notes of one commit per row; the crc continues the crc of the row before.
CREATE TABLE log (seq INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);
