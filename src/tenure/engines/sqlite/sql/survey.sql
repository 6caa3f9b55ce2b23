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

-- items: What a session has and waits for, above a rank and a number.
-- in: session, rank, number, limit
-- out: rank of the family, number, key, name, whether it has it, token
SELECT * FROM (
  SELECT 0, rank, key, name, NOT waits, CASE WHEN waits THEN 0 ELSE place END FROM hold
  WHERE session = :session AND (0, hold.rank) > (:rank, :number) ORDER BY hold.rank LIMIT :limit)
UNION ALL SELECT * FROM (
  SELECT 1, rank, key, name, NOT waits, token FROM claim
  WHERE session = :session AND (1, claim.rank) > (:rank, :number) ORDER BY claim.rank LIMIT :limit)
UNION ALL SELECT * FROM (
  SELECT 2, participant.rank, key, name, NOT waits, 0 FROM participant
  WHERE session = :session AND (2, participant.rank) > (:rank, :number) ORDER BY participant.rank LIMIT :limit)
UNION ALL SELECT * FROM (
  SELECT 3, producer.rank, queue, name, place = 1, 0 FROM producer
  WHERE session = :session AND (3, producer.rank) > (:rank, :number) ORDER BY producer.rank LIMIT :limit)
UNION ALL SELECT * FROM (
  SELECT 4, task.token, queue.name, task.id || ' ' || task.token, 1, task.token FROM task JOIN queue ON queue.id = task.queue
  WHERE task.place = 2 AND task.session = :session AND (4, task.token) > (:rank, :number)
  ORDER BY task.token LIMIT :limit)
UNION ALL SELECT * FROM (
  SELECT 5, taker.rank, queue, '', 0, 0 FROM taker
  WHERE session = :session AND (5, taker.rank) > (:rank, :number) ORDER BY taker.rank LIMIT :limit)
ORDER BY 1, 2 LIMIT :limit
