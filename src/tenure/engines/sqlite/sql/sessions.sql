-- beginning: What every batch has to know first.
-- out: the last token, ending and rank; the soonest end of a session, of a task, of a dead letter and of a rest;
--      the soonest record to forget; the soonest limiter that is as good as new; when to look at a queue;
--      whether there are families, watches, watches of changes of tasks, and unserved lines
SELECT last_token, last_ending, last_rank,
  (SELECT min(expires) FROM session),
  (SELECT min(expires) FROM task WHERE expires IS NOT NULL),
  (SELECT min(expires) FROM ended WHERE expires IS NOT NULL AND state = 'dead'),
  (SELECT min(rest_until) FROM resource WHERE state = 'resting'),
  (SELECT min(expires) FROM ended WHERE expires IS NOT NULL AND state <> 'dead'),
  (SELECT min(until) FROM limiter),
  (SELECT min(look_at) FROM queue WHERE look_at IS NOT NULL),
  EXISTS (SELECT 1 FROM family),
  EXISTS (SELECT 1 FROM watch),
  EXISTS (SELECT 1 FROM watch WHERE kind = 'change'),
  EXISTS (SELECT 1 FROM unserved)
FROM meta

-- families: The times of families, which a batch has to know where there are any.
SELECT
  (SELECT 0.0 FROM family WHERE sweeps = 1 LIMIT 1),
  (SELECT min(until) FROM family WHERE timed = 1),
  (SELECT 0.0 FROM family WHERE over = 1 LIMIT 1)

-- numbers: Keep the last numbers.
UPDATE meta SET last_token = :token, last_ending = :ending, last_rank = :rank

-- begin_meta: The first row, of a fresh file.
INSERT INTO meta VALUES (1, :boot, 0, 0, 0)

-- boot: The boot that the sessions belong to.
SELECT boot FROM meta

-- change_boot: Sessions belong to another boot from now on.
UPDATE meta SET boot = :boot

-- end_all: End all sessions, which belonged to another boot.
UPDATE session SET expires = -1

-- end_far: End sessions whose end is too far off to be of this boot.
UPDATE session SET expires = -1 WHERE expires > :now + ttl

-- find: A session by its name.
SELECT id, process, ttl FROM session WHERE name = :name

-- process: The process of a session.
SELECT process FROM session WHERE id = :id

-- open: Begin a session.
INSERT INTO session (name, process, ttl, expires) VALUES (:name, :process, :ttl, :expires)

-- renew: Push the end of a session.
UPDATE session SET ttl = :ttl, expires = :expires WHERE id = :id

-- end: Have a session end now, before all others.
UPDATE session SET expires = -1 WHERE id = :id

-- expired: The sessions that have ended, in the order of their ends.
SELECT id, process, ttl FROM session WHERE expires <= :now ORDER BY expires, name

-- forget: The session has nothing left.
DELETE FROM session WHERE id = :id

-- soonest: When the next session ends.
SELECT min(expires) FROM session

-- watch: Note a request to be hinted.
INSERT OR IGNORE INTO watch (kind, key, task, session) VALUES (:kind, :key, :task, :session)

-- watchers: The watchers of a topic, in the order of registration.
SELECT process FROM watch JOIN session ON session.id = watch.session
WHERE kind = :kind AND key = :key AND task = :task ORDER BY watch.id

-- fired: The watches of a topic are over.
DELETE FROM watch WHERE kind = :kind AND key = :key AND task = :task

-- task_watchers: Those that watch these tasks for their ends, or for their next changes, in the order of registration.
SELECT key, task, process FROM watch JOIN session ON session.id = watch.session
WHERE kind = :kind AND task IN (SELECT value FROM json_each(:tasks)) ORDER BY watch.id

-- fired_tasks: Such watches are over.
DELETE FROM watch WHERE kind = :kind AND task IN (SELECT value FROM json_each(:tasks))

-- next_watch: Something that a session watches.
SELECT id FROM watch WHERE session = :session ORDER BY id LIMIT 1

-- unwatch: Forget a watch.
DELETE FROM watch WHERE id = :id
