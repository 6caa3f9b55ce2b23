-- holds: Keys, in the order of their names.
SELECT key, held > 0 FROM line WHERE key >= :prefix AND key < :end AND key > :after ORDER BY key LIMIT :limit

-- limiters: Limiters, in the order of their names; the JSON begins with held_until, held, last_due.
SELECT key, max(json_extract(limiter, '$[0]'), json_extract(limiter, '$[2]') + json_extract(limiter, '$[1]')) > :soon
FROM limiter WHERE key >= :prefix AND key < :end AND key > :after ORDER BY key LIMIT :limit

-- pools: The next pool that has a resource.
SELECT min(key) FROM resource WHERE key >= :prefix AND key < :end AND key > :after

-- queues: Queues.
SELECT name FROM queue WHERE name >= :prefix AND name < :end AND name > :after ORDER BY name LIMIT :limit

-- sessions: Sessions that are open.
SELECT name, 1 FROM session WHERE name >= :prefix AND name < :end AND name > :after ORDER BY name LIMIT :limit
