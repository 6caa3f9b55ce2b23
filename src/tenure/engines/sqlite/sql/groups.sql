-- grouping: What a queue has for all its groups together.
SELECT named, unfinished, takeable, producers, virtual_time, per_group, max_size, hold, every, burst, group_every,
  group_burst, starts_at, paced_at, closed_until, closed, idle, weights
FROM grouping WHERE queue = :queue

-- save_grouping: Keep it.
REPLACE INTO grouping VALUES (:queue, :named, :unfinished, :takeable, :producers, :virtual_time, :per_group, :max_size,
  :hold, :every, :burst, :group_every, :group_burst, :starts_at, :paced_at, :closed_until, :closed, :idle, :weights)

-- delete_grouping: Forget it.
DELETE FROM grouping WHERE queue = :queue

-- find: Groups by their names. `repeated` makes one row of parameters several.
WITH wanted (queue, name) AS (VALUES (:queue, :name))
SELECT task_group.name, unfinished, waiting, leased, takeable, pinned_task, rests, reserved, producers, starts_at, paced_at,
  closed_until, tag
FROM wanted CROSS JOIN task_group ON task_group.queue = wanted.queue AND task_group.name = wanted.name

-- add: Keep new groups whose first task is ready; repeated as for `find`.
WITH new (queue, name, tag) AS (VALUES (:queue, :name, :tag))
INSERT INTO task_group SELECT queue, name, 1, 1, 0, 1, 0, 0, 0, 0, -9e999, NULL, -9e999, tag FROM new

-- save: Keep groups. They are parameters since a tag would lose its last bits in JSON; repeated as for `find`.
REPLACE INTO task_group VALUES (:queue, :name, :unfinished, :waiting, :leased, :takeable, :pinned_task, :rests, :reserved,
  :producers, :starts_at, :paced_at, :closed_until, :tag)

-- delete: Forget groups of one queue; repeated as for `find`. A row value with IN would read the whole table.
WITH gone (queue, name) AS (VALUES (:queue, :name))
DELETE FROM task_group WHERE queue IN (SELECT queue FROM gone) AND name IN (SELECT name FROM gone)

-- next: The groups whose turns are next.
SELECT tag, name, waiting,
  (SELECT id FROM task WHERE task.queue = :queue AND group_name = task_group.name AND place = 0
    ORDER BY priority DESC, ready_at, id LIMIT 1)
FROM task_group WHERE queue = :queue AND takeable > 0 ORDER BY tag, name LIMIT :count

-- take_each: The only task that is ready is taken of each group up to a place in the order of turns.
UPDATE task_group SET waiting = 0, takeable = 0, leased = leased + (name > x'')
WHERE queue = :queue AND takeable > 0 AND (tag, name) <= (:tag, :name)

-- delete_ended: Forget groups of which nothing is left when these tasks, which are leased, end.
DELETE FROM task_group WHERE queue = :queue AND unfinished = 1 AND reserved = 0 AND producers = 0
  AND starts_at = -9e999 AND name IN (SELECT group_name FROM task WHERE id IN (SELECT value FROM json_each(:ids)) AND group_name > x'')

-- each: The named groups.
SELECT name, unfinished, waiting, leased, takeable, pinned_task, rests, reserved, producers, starts_at, paced_at,
  closed_until, tag
FROM task_group WHERE queue = :queue AND name > x''

-- closed: The first groups that are closed until a time.
SELECT name, closed_until FROM task_group
WHERE queue = :queue AND closed_until > -9e999 AND closed_until < 9e999 ORDER BY closed_until, name LIMIT :count

-- idle: Idle groups whose next task could start at that time or before.
SELECT name FROM task_group
WHERE queue = :queue AND unfinished = 0 AND reserved = 0 AND producers = 0 AND name > x'' AND starts_at <= :time
ORDER BY starts_at LIMIT :limit

-- longest: The groups with the most unfinished tasks, behind a place.
SELECT name, unfinished, waiting, unfinished - waiting - leased, leased FROM task_group
WHERE queue = :queue AND name > x'' AND unfinished > 0 AND (-unfinished, name) > (:less, :name) ORDER BY unfinished DESC, name LIMIT :limit
