-- write: A message for a process that another engine serves.
-- in: process, at, key, name, news
INSERT INTO hint (process, at, key, name, news) VALUES (:process, :at, :key, :name, :news)

-- last: The last message.
-- out: id
SELECT max(id) FROM hint

-- read: The messages for a process after those that it has seen.
-- in: process, seen
-- out: id, key, name, news
SELECT id, key, name, news FROM hint WHERE process = :process AND id > :seen ORDER BY id

-- forget: Outdated messages, the oldest first.
-- in: before, count
DELETE FROM hint WHERE id IN (SELECT id FROM hint ORDER BY id LIMIT :count) AND at < :before
