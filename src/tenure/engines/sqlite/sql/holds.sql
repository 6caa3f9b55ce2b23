-- line: The state of a key.
-- in: key
-- out: id, capacity, fixed, used, ordinal, held, waiting
SELECT id, capacity, fixed, used, ordinal, held, waiting FROM line WHERE key = :key

-- new_line: A key comes into use.
-- in: key, capacity
INSERT INTO line (key, capacity, fixed, used, ordinal, held, waiting) VALUES (:key, :capacity, 0, 0, 0, 0, 0)

-- save_line: Keep the state of a key.
-- in: id, capacity, fixed, used, ordinal, held, waiting
UPDATE line SET capacity = :capacity, fixed = :fixed, used = :used, ordinal = :ordinal, held = :held, waiting = :waiting
WHERE id = :id

-- delete_line: The key is in use no longer.
-- in: id
DELETE FROM line WHERE id = :id

-- hold: One holder or waiter.
-- in: line, holder
-- out: id, session, process, weight, ordinal, token
SELECT hold.id, session, process, weight, ordinal, token FROM hold JOIN session ON session.id = hold.session
WHERE line = :line AND holder = :holder

-- head: The ordinal of the head of the line.
-- in: line
-- out: ordinal
SELECT min(ordinal) FROM hold WHERE line = :line AND token = 0

-- first: The head of the line.
-- in: line
-- out: id, holder, process, weight
SELECT hold.id, holder, process, weight FROM hold JOIN session ON session.id = hold.session
WHERE line = :line AND token = 0 ORDER BY ordinal LIMIT 1

-- new_hold: Come to hold or to wait.
-- in: line, holder, session, weight, value, ordinal, since, token
INSERT INTO hold (line, holder, session, weight, value, ordinal, since, token)
VALUES (:line, :holder, :session, :weight, :value, :ordinal, :since, :token)

-- grant: A waiter becomes a holder.
-- in: id, since, token
UPDATE hold SET since = :since, token = :token WHERE id = :id

-- delete_hold: It is given back, or the place is left.
-- in: id
DELETE FROM hold WHERE id = :id

-- set_value: Change what others see.
-- in: id, value
UPDATE hold SET value = :value WHERE id = :id

-- holders: The holders, in the order of the grants.
-- in: line, limit
-- out: process, holder, token, weight, value, since
SELECT process, holder, token, weight, value, since FROM hold JOIN session ON session.id = hold.session
WHERE line = :line AND token > 0 ORDER BY token LIMIT :limit

-- waiting: The waiters, in the order of the line.
-- in: line, limit
-- out: process, holder, token, weight, value, since
SELECT process, holder, token, weight, value, since FROM hold JOIN session ON session.id = hold.session
WHERE line = :line AND token = 0 ORDER BY ordinal LIMIT :limit

-- next_of_session: The first that a session holds or waits for.
-- in: session
-- out: key, holder
SELECT key, holder FROM hold JOIN line ON line.id = hold.line WHERE session = :session ORDER BY hold.id LIMIT 1

-- unserved: Lines whose serving was cut short.
-- out: key
SELECT key FROM unserved ORDER BY id

-- forget_unserved: They are about to be served.
DELETE FROM unserved

-- note_unserved: The serving of a line was cut short.
-- in: key
INSERT OR IGNORE INTO unserved (key) VALUES (:key)
