-- arrival_time: The theoretical arrival time of a key.
-- in: key
-- out: arrival
SELECT arrival FROM rate WHERE key = :key

-- set_arrival_time: Keep the theoretical arrival time of a key.
-- in: key, arrival
INSERT INTO rate VALUES (:key, :arrival) ON CONFLICT (key) DO UPDATE SET arrival = excluded.arrival

-- sweep: Forget some keys that are as good as new.
-- in: now, count
DELETE FROM rate WHERE key IN (SELECT key FROM rate WHERE arrival <= :now ORDER BY arrival LIMIT :count)

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
