-- queue: The state of a queue by its name.
SELECT id, look_at, has_groups, name, paused, revision, live, waiting, delayed, put, done, dead, cancelled, expired,
  discarded, purged, reserved, producers, takers, stops, ordinal, lasting, suspended, ending, held, cursors, keep_until
FROM queue WHERE name = :name

-- name: The name of a queue.
SELECT name FROM queue WHERE id = :id

-- new: A queue comes into use.
INSERT INTO queue (name) VALUES (:name)

-- save: Keep the state of a queue.
UPDATE queue SET paused = :paused, revision = :revision, live = :live, waiting = :waiting, delayed = :delayed,
  put = :put, done = :done, dead = :dead, cancelled = :cancelled, expired = :expired, discarded = :discarded,
  purged = :purged, reserved = :reserved, producers = :producers, takers = :takers, stops = :stops, ordinal = :ordinal,
  lasting = :lasting, suspended = :suspended, ending = :ending, held = :held, cursors = :cursors,
  keep_until = :keep_until, look_at = :look_at, has_groups = :has_groups
WHERE id = :id

-- delete: Forget a queue.
DELETE FROM queue WHERE id = :id

-- to_look_at: Queues whose time to be looked at has come.
SELECT name FROM queue WHERE look_at <= :now ORDER BY look_at LIMIT :count
