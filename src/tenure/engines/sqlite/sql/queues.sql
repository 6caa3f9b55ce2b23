-- queue: The state of a queue by its name.
-- in: name
-- out: all columns
SELECT id, name, paused, max_size, live, waiting, delayed, put, done, dead, cancelled, expired, discarded, purged,
  reserved, producers, takers, stops, ordinal, lasting, keep_until, look_at, has_groups
FROM queue WHERE name = :name

-- name: The name of a queue.
-- in: id
-- out: name
SELECT name FROM queue WHERE id = :id

-- new: A queue comes into use.
-- in: name
INSERT INTO queue (name) VALUES (:name)

-- save: Keep the state of a queue.
-- in: all columns but the name
UPDATE queue SET paused = :paused, max_size = :max_size, live = :live, waiting = :waiting, delayed = :delayed,
  put = :put, done = :done, dead = :dead, cancelled = :cancelled, expired = :expired, discarded = :discarded,
  purged = :purged, reserved = :reserved, producers = :producers, takers = :takers, stops = :stops, ordinal = :ordinal,
  lasting = :lasting, keep_until = :keep_until, look_at = :look_at, has_groups = :has_groups
WHERE id = :id

-- delete: Forget a queue.
-- in: id
DELETE FROM queue WHERE id = :id

-- to_look_at: Queues whose time to be looked at has come.
-- in: now, count
-- out: name
SELECT name FROM queue WHERE look_at <= :now ORDER BY look_at LIMIT :count

-- any_cursor: Whether a queue has a position that a producer stored.
-- in: queue
-- out: 1 or 0
SELECT EXISTS (SELECT 1 FROM cursor WHERE queue = :queue)

-- cursors: The positions that producers stored.
-- in: queue
-- out: name, value
SELECT name, value FROM cursor WHERE queue = :queue

-- cursor: One position that a producer stored.
-- in: queue, name
-- out: value
SELECT value FROM cursor WHERE queue = :queue AND name = :name

-- set_cursor: Store a position.
-- in: queue, name, value
INSERT INTO cursor VALUES (:queue, :name, :value) ON CONFLICT (queue, name) DO UPDATE SET value = excluded.value

-- producer: One producer by its name.
-- in: queue, name
-- out: id, count, ordinal, place, group_name
SELECT id, count, ordinal, place, group_name FROM producer WHERE queue = :queue AND name = :name

-- new_producer: A producer joins the line of the queue, or that of its group.
-- in: queue, name, session, count, ordinal, place, group
INSERT INTO producer (queue, name, session, count, ordinal, place, group_name)
VALUES (:queue, :name, :session, :count, :ordinal, :place, :group)

-- producers_head: The ordinal of the head of the producers' line.
-- in: queue
-- out: ordinal
SELECT min(ordinal) FROM producer WHERE queue = :queue AND place = 0

-- first_in_group: The head of the line of a group.
-- in: queue, group
-- out: id, count, ordinal
SELECT id, count, ordinal FROM producer WHERE queue = :queue AND group_name = :group AND place = 2 ORDER BY ordinal LIMIT 1

-- leave_group: It goes from the line of its group to that of the queue.
-- in: id, ordinal
UPDATE producer SET place = 0, ordinal = :ordinal WHERE id = :id

-- waited_for: The groups for which producers wait.
-- in: queue
-- out: group_name
SELECT DISTINCT group_name FROM producer WHERE queue = :queue AND place = 2 ORDER BY group_name

-- first_producer: The head of the producers' line.
-- in: queue
-- out: id, name, process, count
SELECT producer.id, producer.name, process, count FROM producer JOIN session ON session.id = producer.session
WHERE queue = :queue AND place = 0 ORDER BY ordinal LIMIT 1

-- reserve: Its slots are reserved.
-- in: id
UPDATE producer SET place = 1 WHERE id = :id

-- delete_producer: It leaves, or has put its tasks.
-- in: id
DELETE FROM producer WHERE id = :id

-- next_producer_of_session: The first place or reservation of a session.
-- in: session
-- out: queue (its name), producer
SELECT queue.name, producer.name FROM producer JOIN queue ON queue.id = producer.queue
WHERE session = :session ORDER BY producer.id LIMIT 1

-- idle: A session wants tasks; one that is idle already keeps its place.
-- in: queue, session, want
INSERT INTO taker (queue, session, want) VALUES (:queue, :session, :want)
ON CONFLICT (queue, session) DO UPDATE SET want = excluded.want

-- is_idle: Whether a session is idle.
-- in: queue, session
-- out: id
SELECT id FROM taker WHERE queue = :queue AND session = :session

-- first_taker: The taker that has been idle for longest.
-- in: queue
-- out: id, process, want
SELECT taker.id, process, want FROM taker JOIN session ON session.id = taker.session
WHERE queue = :queue ORDER BY taker.id LIMIT 1

-- busy: A taker is idle no longer.
-- in: id
DELETE FROM taker WHERE id = :id

-- next_taker_of_session: Where a session is idle.
-- in: session
-- out: queue (its name), id
SELECT queue.name, taker.id FROM taker JOIN queue ON queue.id = taker.queue
WHERE session = :session ORDER BY taker.id LIMIT 1
