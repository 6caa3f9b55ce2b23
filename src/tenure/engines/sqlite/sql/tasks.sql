-- insert: Put tasks. `repeated` makes one row of parameters several.
INSERT INTO task (id, queue, place, priority, ready_at, expires, deadline, kin, meta, key, group_name, first_put, payload)
VALUES (:id, :queue, :place, :priority, :ready_at, :expires, :deadline, :kin, :meta, :key, :group, :first_put, :payload)

-- insert_alike: Put tasks that differ in their payload and group alone, and have no key: one statement for all of them.
-- in: queue, id (of the first, the others follow), place, priority, ready_at, expires, deadline, kin, meta, in_groups (whether
--     any has one), rows (JSON arrays of the offset and length of the payload in bytes, and of the group if any has one), bytes
INSERT INTO task (id, queue, place, priority, ready_at, expires, deadline, kin, meta, group_name, payload)
SELECT :id + key, :queue, :place, :priority, :ready_at, :expires, :deadline, :kin, :meta,
  CASE WHEN :in_groups THEN substr(:bytes, json_extract(value, '$[2]'), json_extract(value, '$[3]')) ELSE x'' END,
  substr(:bytes, json_extract(value, '$[0]'), json_extract(value, '$[1]'))
FROM json_each(:rows)

-- owners: The tasks that have keys: those that have ended, then the unfinished ones. `repeated` makes one row of
-- parameters several.
-- out: key, id, place (NULL: it has ended), kin
WITH wanted (queue, key, now) AS (VALUES (:queue, :key, :now))
SELECT kept_key.key, task, NULL, 0 FROM wanted
CROSS JOIN kept_key ON kept_key.queue = wanted.queue AND kept_key.key = wanted.key AND until > now
UNION ALL SELECT task.key, id, place, kin FROM wanted
CROSS JOIN task ON task.queue = wanted.queue AND task.key = wanted.key

-- keep_key: A key lasts until a moment, for a task that has it or gets it.
INSERT INTO kept_key VALUES (:queue, :key, :task, :until) ON CONFLICT (queue, key) DO UPDATE SET
  until = CASE WHEN task = excluded.task THEN max(until, excluded.until) ELSE excluded.until END, task = excluded.task

-- drop_key: A key lasts only while its task is unfinished.
DELETE FROM kept_key WHERE queue = :queue AND key = :key

-- any_kept_key: Whether a queue has rows of keys.
SELECT EXISTS (SELECT 1 FROM kept_key WHERE queue = :queue)

-- forget_keys: Delete the rows of keys that are over, a few at a time.
DELETE FROM kept_key WHERE queue = :queue AND key IN
  (SELECT key FROM kept_key WHERE queue = :queue AND until <= :now ORDER BY until LIMIT :count)

-- next_key: When the next one is over.
SELECT min(until) FROM kept_key WHERE queue = :queue

-- due: When the next delayed task becomes due.
SELECT min(ready_at) FROM task WHERE queue = :queue AND place = 1

-- promote: Delayed tasks that are due are waiting from now on.
UPDATE task SET place = 0 WHERE id IN
  (SELECT id FROM task WHERE queue = :queue AND place = 1 AND ready_at <= :now ORDER BY ready_at, id LIMIT :count)

-- first_by_priority: The next tasks without a group in the order of priority.
-- out: JSON arrays of id, priority, attempts, deliveries, ready_at, kin, the length of the payload, and those of progress,
--      failure and meta in one text, with the deadline if it has one (NULL if it has none of these, as most have none: that
--      costs nothing); the bytes of all four
SELECT json_group_array(json_array(id, priority, attempts, deliveries, ready_at, kin, length(payload),
    CASE WHEN progress = x'' AND failure = x'' AND meta = x'' AND deadline IS NULL THEN NULL
    ELSE length(progress) || ' ' || length(failure) || ' ' || length(meta) || coalesce(' ' || deadline, '') END)),
  CAST(group_concat(CASE WHEN progress = x'' AND failure = x'' AND meta = x'' THEN payload
    ELSE payload || progress || failure || meta END, '') AS BLOB)
FROM (SELECT * FROM task WHERE queue = :queue AND group_name = x'' AND place = 0
  ORDER BY priority DESC, ready_at, id LIMIT :count)

-- first_by_age: The next tasks without a group in the order of age, among those that were ready before a moment.
SELECT json_group_array(json_array(id, priority, attempts, deliveries, ready_at, kin, length(payload),
    CASE WHEN progress = x'' AND failure = x'' AND meta = x'' AND deadline IS NULL THEN NULL
    ELSE length(progress) || ' ' || length(failure) || ' ' || length(meta) || coalesce(' ' || deadline, '') END)),
  CAST(group_concat(CASE WHEN progress = x'' AND failure = x'' AND meta = x'' THEN payload
    ELSE payload || progress || failure || meta END, '') AS BLOB)
FROM (SELECT * FROM task WHERE queue = :queue AND group_name = x'' AND place = 0 AND ready_at < :before
  ORDER BY ready_at, id LIMIT :count)

-- these: Tasks to be taken, in their order.
SELECT json_group_array(json_array(task.id, priority, attempts, deliveries, ready_at, kin, length(payload),
    CASE WHEN progress = x'' AND failure = x'' AND meta = x'' AND deadline IS NULL THEN NULL
    ELSE length(progress) || ' ' || length(failure) || ' ' || length(meta) || coalesce(' ' || deadline, '') END)),
  CAST(group_concat(CASE WHEN progress = x'' AND failure = x'' AND meta = x'' THEN payload
    ELSE payload || progress || failure || meta END, '') AS BLOB)
FROM json_each(:ids) AS taken CROSS JOIN task ON task.id = taken.value

-- group_by_priority: The next tasks of a group in the order of priority.
SELECT id FROM task WHERE queue = :queue AND group_name = :group AND place = 0
ORDER BY priority DESC, ready_at, id LIMIT :count

-- group_by_age: The next tasks of a group in the order of age, among those that were ready before a moment.
SELECT id FROM (
  SELECT * FROM (SELECT ready_at, id FROM task INDEXED BY task_priority
    WHERE queue = :queue AND group_name = :group AND place = 0 AND priority = 0 AND ready_at < :before
    ORDER BY ready_at, id LIMIT :count)
  UNION ALL
  SELECT * FROM (SELECT ready_at, id FROM task INDEXED BY task_age
    WHERE queue = :queue AND group_name = :group AND place = 0 AND priority <> 0 AND ready_at < :before
    ORDER BY ready_at, id LIMIT :count))
ORDER BY ready_at, id LIMIT :count

-- lease: A session takes tasks; their tokens follow one another.
UPDATE task SET place = 2, session = :session, token = :token + taken.key, deliveries = deliveries + 1,
  max_deliveries = :max_deliveries, keep = :keep, dead_ttl = :dead_ttl
FROM json_each(:ids) AS taken WHERE task.id = taken.value

-- leased: The tasks among these that a session has taken.
SELECT json_group_array(json_array(id, token, attempts, deliveries, ready_at, stop, stop_ttl, kin, deadline, hex(group_name)))
FROM task WHERE id IN (SELECT value FROM json_each(:ids)) AND +queue = :queue AND +session = :session

-- record: Keep a record of tasks that end.
-- in: rows (JSON arrays of id, state, seq, attempts, expires, offset and length of the result in bytes), bytes, now
INSERT INTO ended (id, queue, state, seq, priority, attempts, deliveries, ended_at, token, expires, kin, group_name, key,
  progress, failure, meta, result, payload)
SELECT task.id, queue, json_extract(value, '$[1]'), json_extract(value, '$[2]'), priority, json_extract(value, '$[3]'),
  deliveries, :now, token, json_extract(value, '$[4]'), kin, group_name, task.key, progress, failure, meta,
  substr(:bytes, json_extract(value, '$[5]'), json_extract(value, '$[6]')),
  CASE WHEN keep OR json_extract(value, '$[1]') = 'dead' THEN payload ELSE x'' END
FROM json_each(:rows) AS ending CROSS JOIN task ON task.id = json_extract(ending.value, '$[0]')

-- delete: They are unfinished no longer.
DELETE FROM task WHERE id IN (SELECT value FROM json_each(:ids))

-- task: An unfinished task.
-- out: the columns of a `rules.Task`
SELECT id, token, attempts, deliveries, ready_at, stop, stop_ttl, kin, deadline, group_name, place, session,
  max_deliveries, dead_ttl, expires, first_put
FROM task WHERE id = :id AND +queue = :queue

-- stops: Tokens of tasks of a session whose cancellation was requested, in the order of the requests.
SELECT token FROM task WHERE session = :session AND queue = :queue AND stop > 0 ORDER BY stop

-- next_of_session: The task that a session took first.
SELECT queue.name, task.id FROM task JOIN queue ON queue.id = task.queue
WHERE session = :session AND place = 2 ORDER BY token LIMIT 1

-- of_session: The tasks that a session has, behind a token.
SELECT task.token, queue.name, task.id FROM task JOIN queue ON queue.id = task.queue
WHERE session = :session AND place = 2 AND token > :token ORDER BY token LIMIT :limit

-- expired: Tasks that expire or are late, in the order of their time and id.
SELECT queue.name, task.id, token, attempts, deliveries, ready_at, stop, stop_ttl, kin, deadline, group_name, place,
  session, max_deliveries, dead_ttl, expires, first_put
FROM task JOIN queue ON queue.id = task.queue
WHERE expires <= :now ORDER BY expires, task.id LIMIT :count

-- soonest: When the next task expires or is late.
SELECT min(expires) FROM task WHERE expires IS NOT NULL

-- ended_task: The whole record of a task that has ended.
-- out: kin, deadline, seq, id, state, payload, priority, key, attempts, deliveries, result, since when, token, progress,
--      failure, meta, group_name
SELECT kin, NULL, seq, id, state, payload, priority, key, attempts, deliveries, result, ended_at, token, progress,
  failure, meta, group_name
FROM ended
WHERE id = :id AND queue = :queue AND (expires IS NULL OR expires > :now)

-- forget: Delete outdated records, a few at a time.
DELETE FROM ended WHERE id IN
  (SELECT id FROM ended WHERE expires <= :now AND state <> 'dead' ORDER BY expires LIMIT :count)

-- delete_letters: Delete outdated dead letters, in the order of their time and id.
DELETE FROM ended WHERE id IN
  (SELECT id FROM ended WHERE expires <= :now AND state = 'dead' ORDER BY expires, id LIMIT :count)
RETURNING queue, id, kin

-- soonest_letter: When the next dead letter is outdated.
SELECT min(expires) FROM ended WHERE expires IS NOT NULL AND state = 'dead'

-- revive: A dead task is unfinished again.
INSERT INTO task (id, queue, place, priority, ready_at, kin, group_name, key, progress, failure, meta, payload,
  first_put)
SELECT id, queue, 0, priority, :now, kin, group_name, key, progress, failure, meta, payload, :now FROM ended WHERE id = :id

-- forget_one: Delete a record.
DELETE FROM ended WHERE id = :id RETURNING expires

-- waiting_same_time: Those that wait behind a task of the same group and priority that was ready at the same time.
SELECT group_name, priority, ready_at, id, place FROM task
WHERE queue = :queue AND group_name = :group AND place = 0 AND priority = :priority AND ready_at = :ready_at AND id > :id
ORDER BY id LIMIT :limit

-- waiting_later: The tasks of the same group and priority that were ready later.
SELECT group_name, priority, ready_at, id, place FROM task
WHERE queue = :queue AND group_name = :group AND place = 0 AND priority = :priority AND ready_at > :ready_at
ORDER BY ready_at, id LIMIT :limit

-- waiting_lower: The tasks of the same group and a lower priority.
SELECT group_name, priority, ready_at, id, place FROM task
WHERE queue = :queue AND group_name = :group AND place = 0 AND priority < :priority
ORDER BY priority DESC, ready_at, id LIMIT :limit

-- waiting_next: The tasks of the groups behind a group.
SELECT group_name, priority, ready_at, id, place FROM task
WHERE queue = :queue AND group_name > :group AND place = 0
ORDER BY group_name, priority DESC, ready_at, id LIMIT :limit

-- delayed_same_time: Delayed tasks behind a task that is due at the same time.
SELECT ready_at, id, place FROM task
WHERE queue = :queue AND place = 1 AND ready_at = :ready_at AND id > :id ORDER BY id LIMIT :limit

-- delayed_later: Those that are due later.
SELECT ready_at, id, place FROM task
WHERE queue = :queue AND place = 1 AND ready_at > :ready_at ORDER BY ready_at, id LIMIT :limit

-- are_due: Delayed tasks that are due, in the order in which they became so.
SELECT group_name, priority, ready_at, id, place FROM task
WHERE queue = :queue AND place = 1 AND ready_at <= :now ORDER BY ready_at, id LIMIT :limit

-- leased_in_queue: Leased tasks behind a token.
SELECT token, id, place FROM task WHERE queue = :queue AND place = 2 AND token > :token ORDER BY token LIMIT :limit

-- apart: Suspended or ending tasks behind an id.
SELECT id, place FROM task WHERE queue = :queue AND kin = 1 AND place = :place AND id > :id ORDER BY id LIMIT :limit

-- show: The record of each of these tasks, in their order.
SELECT kin, deadline, 0, task.id, :state, payload, priority, task.key, attempts, deliveries, x'', ready_at, token, progress,
  failure, meta, group_name
FROM json_each(:ids) AS shown CROSS JOIN task ON task.id = shown.value

-- browse_ended: Records of a state in the order of the endings.
SELECT kin, NULL, seq, id, state, payload, priority, key, attempts, deliveries, result, ended_at, token, progress,
  failure, meta, group_name, expires
FROM ended
WHERE queue = :queue AND state = :state AND seq > :after ORDER BY seq LIMIT :limit

-- oldest: When the longest waiting task without a group became ready.
SELECT min(ready_at) FROM task WHERE queue = :queue AND group_name = x'' AND place = 0

-- oldest_in_groups: When the longest waiting task of all groups became ready.
SELECT min(ready_at) FROM task INDEXED BY task_age_in_groups
WHERE queue = :queue AND group_name > x'' AND place = 0

-- recount: The rows of a queue.
SELECT (SELECT count(*) FROM task WHERE queue = :queue AND place = 0),
  (SELECT count(*) FROM task WHERE queue = :queue AND place = 1),
  (SELECT count(*) FROM task WHERE queue = :queue AND place = 2),
  (SELECT count(*) FROM task WHERE queue = :queue AND kin = 1 AND place = 3),
  (SELECT count(*) FROM task WHERE queue = :queue AND kin = 1 AND place = 4),
  (SELECT count(*) FROM ended WHERE queue = :queue AND state = 'dead'),
  (SELECT count(*) FROM (
    SELECT group_name FROM task WHERE queue = :queue AND place = 0 AND group_name > x''
    UNION SELECT group_name FROM task WHERE queue = :queue AND place = 1 AND group_name > x''
    UNION SELECT group_name FROM task WHERE queue = :queue AND place = 2 AND group_name > x''
    UNION SELECT group_name FROM task WHERE queue = :queue AND kin = 1 AND place IN (3, 4) AND group_name > x''))
