-- Barriers: all participants go on together, or none does.
-- Needs: state

-- Forget a barrier without information, or set when it is to be checked.
CREATE FUNCTION tenure.tidy_barrier(_now bigint, _key bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM tenure.barrier b WHERE b.key = _key AND NOT b.broken AND b.keep_until <= _now
        AND NOT EXISTS (SELECT FROM tenure.participant p WHERE p.key = _key);
    IF NOT FOUND THEN
        UPDATE tenure.barrier b SET check_at = CASE WHEN b.keep_until > _now THEN b.keep_until END
        WHERE b.key = _key AND coalesce(b.check_at, _now) <= _now;
    END IF;
END $$;

-- All that wait get an outcome; all but `_but` get a hint.
CREATE FUNCTION tenure.conclude_generation(_key bytea, _outcome text, _generation bigint, _but bytea) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    participant tenure.participant;
    nth bigint := 0;
BEGIN
    FOR participant IN SELECT * FROM tenure.participant p WHERE p.key = _key AND p.outcome IS NULL ORDER BY p.made LOOP
        UPDATE tenure.participant p SET outcome = _outcome, generation = _generation, place = nth
        WHERE p.key = _key AND p.name = participant.name;
        IF participant.name IS DISTINCT FROM _but THEN
            PERFORM tenure.hint(participant.process, _key, participant.name, _outcome,
                concat(' ', _generation, CASE WHEN _outcome = 'tripped' THEN ' ' || nth END));
        END IF;
        nth := nth + 1;
    END LOOP;
END $$;

CREATE FUNCTION tenure.break_barrier(_key bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    generation bigint;
BEGIN
    UPDATE tenure.barrier b SET broken = true WHERE b.key = _key RETURNING b.generation INTO generation;
    PERFORM tenure.conclude_generation(_key, 'broken', generation, NULL);
END $$;

CREATE FUNCTION tenure.outcome_of(_arrived tenure.participant) RETURNS tenure.answer LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _arrived.outcome = 'tripped'
        THEN ROW('tripped', ARRAY[_arrived.generation, _arrived.place], NULL)::tenure.answer
        ELSE ROW('broken', ARRAY[_arrived.generation], NULL)::tenure.answer END;

-- -> withdrawn, tripped(generation, place), broken(generation), unknown
CREATE FUNCTION tenure.remove_participant(_now bigint, _key bytea, _participant bytea) RETURNS tenure.answer
LANGUAGE plpgsql AS $$
DECLARE
    participant tenure.participant;
BEGIN
    DELETE FROM tenure.participant p WHERE p.key = _key AND p.name = _participant RETURNING * INTO participant;
    IF NOT FOUND THEN
        RETURN tenure.reply('unknown');
    ELSIF participant.outcome IS NOT NULL THEN
        PERFORM tenure.tidy_barrier(_now, _key);
        RETURN tenure.outcome_of(participant);
    END IF;
    IF (SELECT b.on_departure FROM tenure.barrier b WHERE b.key = _key) = 'break' THEN
        PERFORM tenure.break_barrier(_key);
    END IF;
    PERFORM tenure.tidy_barrier(_now, _key);
    RETURN tenure.reply('withdrawn');
END $$;

-- -> waiting(generation, again, born), tripped(generation, place), broken(generation), mismatch(stored), gone, more
CREATE FUNCTION tenure.arrive(
    _clock bigint, _cap bigint, _session bytea, _key bytea, _participant bytea, _parties bigint, _on_departure text
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    entry record := tenure.enter_in_session(_clock, _session, 'barrier', _key);
    now bigint := entry.now;
    mine tenure.session := entry.mine;
    barrier tenure.barrier;
    participant tenure.participant;
    arrived bigint;
BEGIN
    IF entry.refusal IS NOT NULL THEN
        RETURN tenure.reply(entry.refusal);
    END IF;
    PERFORM tenure.tidy_barrier(now, _key);
    SELECT * INTO barrier FROM tenure.barrier b WHERE b.key = _key;
    IF NOT FOUND THEN
        INSERT INTO tenure.barrier (key, parties, on_departure, born)
        VALUES (_key, _parties, _on_departure, tenure.new_tokens(now, 1)) RETURNING * INTO barrier;
    END IF;
    SELECT * INTO participant FROM tenure.participant p WHERE p.key = _key AND p.name = _participant;
    IF FOUND THEN
        IF participant.outcome IS NOT NULL THEN
            RETURN tenure.outcome_of(participant);
        END IF;
        RETURN ROW('waiting', ARRAY[
            barrier.generation, tenure.ask_again_in(now, NULL), barrier.born], NULL)::tenure.answer;
    ELSIF barrier.broken THEN
        RETURN ROW('broken', ARRAY[barrier.generation], NULL)::tenure.answer;
    END IF;
    SELECT count(*) INTO arrived FROM tenure.participant p WHERE p.key = _key AND p.outcome IS NULL;
    IF arrived > 0 AND barrier.parties <> _parties THEN
        RETURN ROW('mismatch', ARRAY[barrier.parties], NULL)::tenure.answer;
    END IF;
    UPDATE tenure.barrier b SET parties = _parties,
        on_departure = CASE WHEN arrived = 0 THEN _on_departure ELSE b.on_departure END,
        generation = b.generation + (arrived + 1 >= _parties)::int,
        keep_until = greatest(b.keep_until, now + 2 * mine.ttl),
        check_at = coalesce(b.check_at, greatest(b.keep_until, now + 2 * mine.ttl))
    WHERE b.key = _key;
    INSERT INTO tenure.participant (key, name, session, process)
    VALUES (_key, _participant, mine.id, mine.process);
    IF arrived + 1 < _parties THEN
        RETURN ROW('waiting', ARRAY[
            barrier.generation, tenure.ask_again_in(now, NULL), barrier.born], NULL)::tenure.answer;
    END IF;
    PERFORM tenure.conclude_generation(_key, 'tripped', barrier.generation, _participant);
    RETURN ROW('tripped', ARRAY[barrier.generation, arrived], NULL)::tenure.answer;
END $$;

-- -> withdrawn, tripped(generation, place), broken(generation), unknown, more
CREATE FUNCTION tenure.withdraw(_clock bigint, _cap bigint, _key bytea, _participant bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'barrier', _key);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    RETURN tenure.remove_participant(now, _key, _participant);
END $$;

-- -> ok, more
CREATE FUNCTION tenure.reset_barrier(_clock bigint, _cap bigint, _key bytea, _parties bigint)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'barrier', _key);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    PERFORM tenure.tidy_barrier(now, _key);
    IF _parties > 0 AND NOT EXISTS (SELECT FROM tenure.barrier b WHERE b.key = _key) THEN
        INSERT INTO tenure.barrier (key, parties, on_departure, born)
        VALUES (_key, _parties, 'break', tenure.new_tokens(now, 1));
    END IF;
    PERFORM tenure.break_barrier(_key) FROM tenure.barrier b WHERE b.key = _key;
    IF _parties = 0 THEN
        UPDATE tenure.barrier b SET broken = false, generation = b.generation + 1 WHERE b.key = _key;
    END IF;
    PERFORM tenure.tidy_barrier(now, _key);
    RETURN tenure.reply('ok');
END $$;
