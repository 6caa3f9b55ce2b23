-- holds: Keys that somebody holds, in the order of their names.
-- in: prefix, end (after all names with the prefix), after, limit
-- out: name
SELECT key FROM line WHERE key >= :prefix AND key < :end AND key > :after AND held > 0 ORDER BY key LIMIT :limit

-- pools: Pools that have a resource.
-- in: prefix, end, after, limit
-- out: name
SELECT DISTINCT pool FROM resource WHERE pool >= :prefix AND pool < :end AND pool > :after ORDER BY pool LIMIT :limit

-- queues: Queues into which a task was ever put.
-- in: prefix, end, after, limit
-- out: name
SELECT name FROM queue WHERE name >= :prefix AND name < :end AND name > :after AND put > 0 ORDER BY name LIMIT :limit

-- sessions: Sessions that are open.
-- in: prefix, end, after, limit
-- out: name
SELECT name FROM session WHERE name >= :prefix AND name < :end AND name > :after ORDER BY name LIMIT :limit

-- belongings: What a session has and waits for, some of each family, counted by key.
-- in: session, limit
-- out: family, its rank, key, how many it has, for how many it waits
SELECT 'holds' AS family, 0 AS rank, line.key AS key, sum(token > 0), sum(token = 0)
FROM (SELECT line, token FROM hold WHERE session = :session ORDER BY id LIMIT :limit) AS mine
JOIN line ON line.id = mine.line GROUP BY line.key
UNION ALL
SELECT 'claims', 1, pool, count(resource), count(*) - count(resource)
FROM (SELECT pool, resource FROM claim WHERE session = :session ORDER BY id LIMIT :limit) GROUP BY pool
UNION ALL
SELECT 'arrivals', 2, key, count(generation), count(*) - count(generation)
FROM (SELECT key, generation FROM arrival WHERE session = :session ORDER BY id LIMIT :limit) GROUP BY key
UNION ALL
SELECT 'producers', 3, queue.name, sum(mine.reserved), count(*) - sum(mine.reserved)
FROM (SELECT queue, reserved FROM producer WHERE session = :session ORDER BY id LIMIT :limit) AS mine
JOIN queue ON queue.id = mine.queue GROUP BY queue.name
UNION ALL
SELECT 'tasks', 4, queue.name, count(*), 0
FROM (SELECT queue FROM task WHERE place = 2 AND session = :session ORDER BY token LIMIT :limit) AS mine
JOIN queue ON queue.id = mine.queue GROUP BY queue.name
UNION ALL
SELECT 'takers', 5, queue.name, 0, count(*)
FROM (SELECT queue FROM taker WHERE session = :session ORDER BY id LIMIT :limit) AS mine
JOIN queue ON queue.id = mine.queue GROUP BY queue.name
ORDER BY 2, 3
