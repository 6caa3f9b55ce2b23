-- limiter: The state of a limiter that says something.
-- in: key, now
-- out: state
SELECT state FROM limiter WHERE key = :key AND until > :now

-- keep_limiter: Keep the state of a limiter.
-- in: key, until, state
INSERT INTO limiter VALUES (:key, :until, :state)
ON CONFLICT (key) DO UPDATE SET until = excluded.until, state = excluded.state

-- wait_for_limiter: A process waits.
-- in: key, process, due
INSERT INTO limiter_waiter VALUES (:key, :process, :due)
ON CONFLICT (key, process) DO UPDATE SET due = excluded.due

-- forget_waiters: Forget the processes that wait no longer.
-- in: key, time
DELETE FROM limiter_waiter WHERE key = :key AND due < :time

-- waiting_for_limiter: The processes that wait.
-- in: key, time
-- out: process
SELECT process FROM limiter_waiter WHERE key = :key AND due >= :time ORDER BY process

-- outdated_limiters: Some limiters that are as good as new.
-- in: now, count
-- out: key
SELECT key FROM limiter WHERE until <= :now ORDER BY until LIMIT :count

-- delete_limiter: Forget a limiter.
-- in: key
DELETE FROM limiter WHERE key = :key

-- delete_waiters: Forget the processes that waited for a limiter.
-- in: key
DELETE FROM limiter_waiter WHERE key = :key

-- barrier: The state of a barrier.
-- in: key
-- out: parties, on_departure, generation, broken, arrived, keep_until, look_at, born
SELECT parties, on_departure, generation, broken, arrived, keep_until, look_at, born FROM barrier WHERE key = :key

-- save_barrier: Keep the state of a barrier.
-- in: key, parties, on_departure, generation, broken, arrived, keep_until, look_at, born
INSERT INTO barrier VALUES (:key, :parties, :on_departure, :generation, :broken, :arrived, :keep_until, :look_at, :born)
ON CONFLICT (key) DO UPDATE SET parties = excluded.parties, on_departure = excluded.on_departure,
  generation = excluded.generation, broken = excluded.broken, arrived = excluded.arrived,
  keep_until = excluded.keep_until, look_at = excluded.look_at

-- delete_barrier: Forget a barrier.
-- in: key
DELETE FROM barrier WHERE key = :key

-- to_look_at: Barriers whose time to be looked at has come.
-- in: now, count
-- out: key
SELECT key FROM barrier WHERE look_at <= :now ORDER BY look_at LIMIT :count

-- any_arrival: Whether a barrier has anything of a participant.
-- in: key
-- out: 1 or 0
SELECT EXISTS (SELECT 1 FROM arrival WHERE key = :key)

-- arrival: One participant.
-- in: key, participant
-- out: id, generation, place
SELECT id, generation, place FROM arrival WHERE key = :key AND participant = :participant

-- arrive: A participant comes and waits.
-- in: key, participant, session
INSERT INTO arrival (key, participant, session) VALUES (:key, :participant, :session)

-- waiting: The waiting participants, in the order of their arrival.
-- in: key
-- out: id, participant, process
SELECT arrival.id, participant, process FROM arrival JOIN session ON session.id = arrival.session
WHERE key = :key AND generation IS NULL ORDER BY arrival.id

-- set_outcome: A participant has an outcome.
-- in: id, generation, place
UPDATE arrival SET generation = :generation, place = :place WHERE id = :id

-- depart: Forget a participant.
-- in: id
DELETE FROM arrival WHERE id = :id

-- next_of_session: The first arrival of a session.
-- in: session
-- out: key, participant
SELECT key, participant FROM arrival WHERE session = :session ORDER BY id LIMIT 1
