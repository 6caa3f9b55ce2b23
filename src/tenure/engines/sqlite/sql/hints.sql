-- write: A message for a process that another engine serves.
INSERT INTO hint (process, at, key, name, news) VALUES (:process, :at, :key, :name, :news)

-- last: The last message.
SELECT max(id) FROM hint

-- read: The messages for a process after those that it has seen.
SELECT id, key, name, news FROM hint WHERE process = :process AND id > :seen ORDER BY id

-- forget: Outdated messages, the oldest first.
DELETE FROM hint WHERE id IN (SELECT id FROM hint ORDER BY id LIMIT :count) AND at < :before
