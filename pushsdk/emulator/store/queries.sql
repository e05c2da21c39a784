-- insert: nothing if the inbox was reset in the meantime; `first` is the group
INSERT INTO requests(
    inbox, time, endpoint, status, accepted, fault, error, users, campaign, title, text, body, bytes, preview, langs, first)
SELECT :inbox, :time, :endpoint, :status, :accepted, :fault, :error, :users,
    CASE WHEN :accepted THEN :campaign END, :title, :text, :body, :bytes, :preview,
    :langs,
    (SELECT "group" FROM requests WHERE id = (SELECT max(id) FROM requests WHERE inbox = :inbox)
     AND endpoint = 'push' AND :endpoint = 'push' AND title = :title AND text = :text AND title || text <> '')
FROM inboxes WHERE id = :inbox;

-- request: with max(id), the other columns are those of the newest request of a group
SELECT max(id) AS id, "group", count(*) AS requests, sum(users * accepted) AS reached,
    sum(NOT accepted OR coalesce(status, 999) > 299) AS failed,
    time, endpoint, status, accepted, fault, error, users, bytes, campaign, preview,
    (SELECT name FROM inboxes WHERE id = requests.inbox) AS inbox;

-- inbox: create one
INSERT OR IGNORE INTO inboxes(name, label) SELECT ?, 'Inbox ' || (count(*) + 1) FROM inboxes;

-- inboxes: the one with the latest request first
SELECT name, label, requests,
    (SELECT count(*) FROM requests WHERE inbox = inboxes.id AND endpoint = 'campaigns') AS campaigns,
    (SELECT time FROM requests WHERE inbox = inboxes.id ORDER BY id DESC LIMIT 1) AS last
FROM inboxes ORDER BY last DESC, id;

-- received: equal pushes per user, from one user on, as people count
SELECT user, sum(times) FROM received
WHERE inbox = ? AND instr(user, ?) AND (stem, length, digits) > (?, ?, ?)
GROUP BY stem, length, digits, digest;

-- delivered: the newest pushes of a user
WITH pushed AS (
    SELECT request AS id, sum(times) AS times FROM received WHERE inbox = ? AND (stem, length, digits) = (?, ?, ?)
    GROUP BY request),
got AS (SELECT id, time AS at, bytes, times FROM pushed JOIN requests USING (id) ORDER BY at DESC, id DESC LIMIT ?),
summed AS (SELECT id, at, times, sum(bytes) OVER (ORDER BY at DESC, id DESC) AS sum FROM got)
SELECT id, at AS time, CASE WHEN sum <= ? THEN body ELSE x'' END AS body, times
FROM summed JOIN requests USING (id) ORDER BY at, id;

-- totals: over all inboxes
SELECT (SELECT count(*) FROM (SELECT DISTINCT inbox, stem, length, digits FROM received)) AS users,
    (SELECT count(*) FROM (SELECT DISTINCT inbox, stem, digits FROM (SELECT inbox, stem, digits FROM received
        GROUP BY inbox, stem, length, digits, digest HAVING sum(times) > 1))) AS duplicates,
    (SELECT count(*) FROM requests WHERE endpoint = 'push' AND accepted) AS pushes,
    (SELECT count(*) FROM requests WHERE campaign NOT NULL) AS campaigns;
