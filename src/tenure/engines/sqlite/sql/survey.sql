-- holds: Keys, in the order of their names.
-- in: prefix, end (after all names with the prefix), after, limit
-- out: name, whether it is held
SELECT key, held > 0 FROM line WHERE key >= :prefix AND key < :end AND key > :after ORDER BY key LIMIT :limit

-- pools: The next pool that has a resource.
-- in: prefix, end, after
-- out: name
SELECT min(key) FROM resource WHERE key >= :prefix AND key < :end AND key > :after

-- queues: Queues.
-- in: prefix, end, after, limit
-- out: name
SELECT name FROM queue WHERE name >= :prefix AND name < :end AND name > :after ORDER BY name LIMIT :limit

-- sessions: Sessions that are open.
-- in: prefix, end, after, limit
-- out: name
SELECT name, 1 FROM session WHERE name >= :prefix AND name < :end AND name > :after ORDER BY name LIMIT :limit
