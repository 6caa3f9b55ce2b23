-- pool: The state of a pool.
-- in: name
-- out: ordinal, waiting
SELECT ordinal, waiting FROM pool WHERE name = :name

-- save_pool: Keep the state of a pool.
-- in: name, ordinal, waiting
INSERT INTO pool VALUES (:name, :ordinal, :waiting)
ON CONFLICT (name) DO UPDATE SET ordinal = excluded.ordinal, waiting = excluded.waiting

-- delete_pool: Forget a pool that has no resource.
-- in: name
DELETE FROM pool WHERE name = :name AND NOT EXISTS (SELECT 1 FROM resource WHERE pool = :name)

-- resource: A resource by its name.
-- in: pool, name
-- out: id, name, metadata, preference, rests, rest_until, claim, token, retired, removed
SELECT id, name, metadata, preference, rests, rest_until, claim, token, retired, removed
FROM resource WHERE pool = :pool AND name = :name

-- resource_by_id: A resource by its id.
-- in: id
-- out: as `resource`
SELECT id, name, metadata, preference, rests, rest_until, claim, token, retired, removed FROM resource WHERE id = :id

-- add: A resource comes into the pool.
-- in: pool, name, metadata, preference
INSERT INTO resource (pool, name, metadata, preference, used, rests, token, removed)
VALUES (:pool, :name, :metadata, :preference, 0, 0, 0, 0)

-- change: A resource that was known is described anew.
-- in: id, metadata, preference, revive
UPDATE resource SET metadata = :metadata, preference = :preference, removed = 0,
  retired = CASE WHEN :revive THEN NULL ELSE retired END
WHERE id = :id

-- edit: Its claimer changes a resource.
-- in: id, metadata, rest_until, retired
UPDATE resource SET metadata = :metadata, rest_until = :rest_until, retired = :retired WHERE id = :id

-- remove_later: It leaves the pool when it is given back.
-- in: id
UPDATE resource SET removed = 1 WHERE id = :id

-- delete: It leaves the pool.
-- in: id
DELETE FROM resource WHERE id = :id

-- free: The free resources of a pool, best first.
-- in: pool
-- out: id, name, metadata
SELECT id, name, metadata FROM resource
WHERE pool = :pool AND claim IS NULL AND rests = 0 AND retired IS NULL ORDER BY preference DESC, used, name

-- take: A resource is claimed.
-- in: id, claim, token
UPDATE resource SET claim = :claim, token = :token, rest_until = NULL WHERE id = :id

-- give_back: A resource is claimed no longer.
-- in: id, used, rests, rest_until
UPDATE resource SET claim = NULL, token = 0, used = :used, rests = :rests, rest_until = :rest_until WHERE id = :id

-- rest_in_pool: When the next resource of a pool has rested enough.
-- in: pool
-- out: rest_until
SELECT min(rest_until) FROM resource WHERE pool = :pool AND rests = 1

-- rested: The next resource that has rested enough.
-- in: now
-- out: id, pool
SELECT id, pool FROM resource WHERE rests = 1 AND rest_until <= :now ORDER BY rest_until, pool, name LIMIT 1

-- wake: It rests no longer.
-- in: id
UPDATE resource SET rests = 0 WHERE id = :id

-- soonest: When the next resource has rested enough.
-- out: rest_until
SELECT min(rest_until) FROM resource WHERE rests = 1

-- claim: One claimer.
-- in: pool, holder
-- out: id, quarantine, number, ordinal, resource
SELECT id, quarantine, number, ordinal, resource FROM claim WHERE pool = :pool AND holder = :holder

-- new_claim: Come to claim or to wait.
-- in: pool, holder, session, wanted, quarantine, group, number, ordinal
INSERT INTO claim (pool, holder, session, wanted, quarantine, group_name, number, ordinal)
VALUES (:pool, :holder, :session, :wanted, :quarantine, :group, :number, :ordinal)

-- serve: A claimer gets a resource.
-- in: id, resource
UPDATE claim SET resource = :resource WHERE id = :id

-- delete_claim: It is given back, or the place is left.
-- in: id
DELETE FROM claim WHERE id = :id

-- head: The place of the first that waits.
-- in: pool
-- out: number, ordinal
SELECT number, ordinal FROM claim WHERE pool = :pool AND resource IS NULL ORDER BY number, ordinal LIMIT 1

-- numbers: The lowest number of those that wait, and the highest of a group.
-- in: pool, group
-- out: two numbers; NULL if none waits
SELECT (SELECT min(number) FROM claim WHERE pool = :pool AND resource IS NULL),
  (SELECT max(number) FROM claim WHERE pool = :pool AND group_name = :group AND resource IS NULL)

-- waiting: The line of claimers, in order.
-- in: pool
-- out: id, holder, process, wanted
SELECT claim.id, holder, process, wanted FROM claim JOIN session ON session.id = claim.session
WHERE pool = :pool AND resource IS NULL ORDER BY number, ordinal

-- next_of_session: The first that a session claims or waits for.
-- in: session
-- out: pool, holder
SELECT pool, holder FROM claim WHERE session = :session ORDER BY id LIMIT 1

-- list: The resources of a pool behind a name, by name.
-- in: pool, after, limit
-- out: name, metadata, preference, rests, rest_until, token, retired, process (of the claimer)
SELECT resource.name, metadata, preference, rests, rest_until, token, retired, process
FROM resource LEFT JOIN claim ON claim.id = resource.claim LEFT JOIN session ON session.id = claim.session
WHERE resource.pool = :pool AND resource.name > :after ORDER BY resource.name LIMIT :limit
