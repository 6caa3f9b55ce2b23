-- Claims: a pool of named resources, matched by metadata, least recently used first, with a line of waiters. It is
-- in the order of number and ordinal.
-- Needs: state

-- When the next resource of the pool has rested enough; NULL when none rests.
CREATE FUNCTION tenure.next_rested(_pool bytea) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT r.rest_until FROM tenure.resource r WHERE r.pool = _pool AND r.rests ORDER BY r.rest_until LIMIT 1);
END $$;

-- While resources rest, the head of the line has to know when to ask.
CREATE FUNCTION tenure.hint_head(_pool bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    head tenure.claim;
BEGIN
    SELECT * INTO head FROM tenure.claim c WHERE c.pool = _pool AND c.resource IS NULL
    ORDER BY c.number, c.ordinal LIMIT 1;
    IF FOUND AND tenure.next_rested(_pool) IS NOT NULL THEN
        PERFORM tenure.hint(head.process, _pool, head.holder, 'ask');
    END IF;
END $$;

-- A slot of the resource is claimed -> the token of the claim. Unless it was the last slot, the resource has been used.
CREATE FUNCTION tenure.lend_resource(_now bigint, _resource bytea, _claim tenure.claim) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    fresh bigint := tenure.new_tokens(_now, 1);
BEGIN
    UPDATE tenure.resource r SET token = fresh, rest_until = 0, process = _claim.process, claimed = r.claimed + 1,
        used = CASE WHEN r.claimed + 1 < r.slots THEN nextval('tenure.last_use') ELSE r.used END
    WHERE r.pool = _claim.pool AND r.name = _resource;
    UPDATE tenure.claim c SET resource = _resource, token = fresh WHERE c.pool = _claim.pool AND c.holder = _claim.holder;
    RETURN fresh;
END $$;

-- Store what has changed of a resource: it is full, retired, rests, or its slots go to the first waiters in the line whose
-- requests it matches.
CREATE FUNCTION tenure.update_resource(_now bigint, _item tenure.resource) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    is_full boolean := _item.removed OR _item.claimed >= _item.slots;
    sooner boolean;
    first tenure.claim;
    token bigint;
BEGIN
    IF NOT is_full AND _item.retired IS NOT NULL THEN
        _item.rest_until := 0;
    END IF;
    _item.rests := NOT is_full AND _item.rest_until > _now;
    sooner := _item.rests AND _item.rest_until < coalesce(tenure.next_rested(_item.pool), 'infinity'::float8);
    UPDATE tenure.resource r SET metadata = _item.metadata, preference = _item.preference, used = _item.used,
        rests = _item.rests, rest_until = _item.rest_until, slots = _item.slots, claimed = _item.claimed,
        process = _item.process, token = _item.token, retired = _item.retired, removed = _item.removed
    WHERE r.pool = _item.pool AND r.name = _item.name;
    IF sooner THEN
        PERFORM tenure.hint_head(_item.pool);
    END IF;
    IF is_full OR _item.rests OR _item.retired IS NOT NULL THEN
        RETURN;
    END IF;
    FOR first IN SELECT * FROM tenure.claim c
            WHERE c.pool = _item.pool AND c.resource IS NULL AND c.wanted <@ _item.metadata
            ORDER BY c.number, c.ordinal LIMIT _item.slots - _item.claimed LOOP
        token := tenure.lend_resource(_now, _item.name, first);
        PERFORM tenure.hint(first.process, _item.pool, first.holder, 'claimed', concat(
            ' ', token, ' ', tenure.base64(_item.name),
            (SELECT string_agg(' ' || tenure.base64(m.field), '' ORDER BY m.n)
                FROM unnest(_item.metadata) WITH ORDINALITY AS m (field, n))));
    END LOOP;
    IF FOUND THEN
        PERFORM tenure.hint_head(_item.pool);
    END IF;
END $$;

CREATE FUNCTION tenure.tidy_pool(_pool bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM tenure.resource r WHERE r.pool = _pool)
            AND NOT EXISTS (SELECT FROM tenure.claim c WHERE c.pool = _pool) THEN
        DELETE FROM tenure.pool p WHERE p.name = _pool;
    END IF;
END $$;

-- A claim ends that had a slot; `_dead`: because its session ended.
CREATE FUNCTION tenure.free_slot(_now bigint, _claim tenure.claim, _dead boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    item tenure.resource;
BEGIN
    SELECT * INTO item FROM tenure.resource r WHERE r.pool = _claim.pool AND r.name = _claim.resource;
    IF item.removed AND item.claimed = 1 THEN
        DELETE FROM tenure.resource r WHERE r.pool = _claim.pool AND r.name = _claim.resource;
        PERFORM tenure.tidy_pool(_claim.pool);
        RETURN;
    END IF;
    IF _dead AND _claim.quarantine > 0 THEN
        item.rest_until := greatest(item.rest_until, _now + _claim.quarantine);
    END IF;
    IF item.token = _claim.token THEN
        item.process := NULL;
        item.token := 0;
    END IF;
    item.claimed := item.claimed - 1;
    item.used := nextval('tenure.last_use');
    PERFORM tenure.update_resource(_now, item);
END $$;

-- Release, or leave the line. -> released, left, unknown
CREATE FUNCTION tenure.remove_claim(_now bigint, _pool bytea, _holder bytea, _dead boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    claim tenure.claim;
BEGIN
    DELETE FROM tenure.claim c WHERE c.pool = _pool AND c.holder = _holder RETURNING c.* INTO claim;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    IF claim.resource IS NOT NULL THEN
        PERFORM tenure.free_slot(_now, claim, _dead);
        RETURN 'released';
    END IF;
    PERFORM tenure.hint_head(_pool);
    PERFORM tenure.tidy_pool(_pool);
    RETURN 'left';
END $$;

-- -> ok, more
CREATE FUNCTION tenure.add_resource(
    _clock bigint, _cap bigint, _pool bytea, _resource bytea, _metadata bytea[], _preference bigint, _revive boolean,
    _slots bigint
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'pool', _pool);
    item tenure.resource;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    SELECT * INTO item FROM tenure.resource r WHERE r.pool = _pool AND r.name = _resource;
    IF NOT FOUND THEN
        INSERT INTO tenure.resource AS r (pool, name, metadata, preference, slots)
        VALUES (_pool, _resource, _metadata, _preference, _slots) RETURNING r.* INTO item;
    END IF;
    item.metadata := _metadata;
    item.preference := _preference;
    item.slots := _slots;
    item.removed := false;
    IF _revive THEN
        item.retired := NULL;
    END IF;
    PERFORM tenure.update_resource(now, item);
    RETURN tenure.reply('ok');
END $$;

-- -> ok, unknown, more
CREATE FUNCTION tenure.remove_resource(_clock bigint, _cap bigint, _pool bytea, _resource bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'pool', _pool);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    DELETE FROM tenure.resource r WHERE r.pool = _pool AND r.name = _resource AND r.claimed = 0;
    IF FOUND THEN
        PERFORM tenure.tidy_pool(_pool);
        RETURN tenure.reply('ok');
    END IF;
    UPDATE tenure.resource r SET removed = true, rests = false WHERE r.pool = _pool AND r.name = _resource;
    RETURN tenure.reply(CASE WHEN FOUND THEN 'ok' ELSE 'unknown' END);
END $$;

-- The number of a claimer that begins to wait: the head's number, or one more than the highest of its group.
CREATE FUNCTION tenure.next_number(_pool bytea, _group bytea) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN greatest(
        0,
        (SELECT c.number FROM tenure.claim c WHERE c.pool = _pool AND c.resource IS NULL
            ORDER BY c.number, c.ordinal LIMIT 1),
        1 + (SELECT c.number FROM tenure.claim c WHERE c.pool = _pool AND c.resource IS NULL AND c.group_name = _group
            ORDER BY c.number DESC LIMIT 1)
    );
END $$;

-- -> claimed(token; resource, metadata...), queued(place, again), refused, gone, more
CREATE FUNCTION tenure.claim(
    _clock bigint, _cap bigint, _session bytea, _pool bytea, _holder bytea, _wanted bytea[],
    _quarantine bigint, _wait boolean, _group bytea DEFAULT ''
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    entry record := tenure.enter_in_session(_clock, _session, 'pool', _pool);
    now bigint := entry.now;
    mine tenure.session := entry.mine;
    claim tenure.claim;
    item tenure.resource;
    place bigint;
BEGIN
    IF entry.refusal IS NOT NULL THEN
        RETURN tenure.reply(entry.refusal);
    END IF;
    SELECT * INTO claim FROM tenure.claim c WHERE c.pool = _pool AND c.holder = _holder;
    IF FOUND AND claim.resource IS NOT NULL THEN
        SELECT * INTO item FROM tenure.resource r WHERE r.pool = _pool AND r.name = claim.resource;
        RETURN ROW('claimed', ARRAY[claim.token], item.name || item.metadata)::tenure.answer;
    ELSIF NOT FOUND THEN
        SELECT * INTO item FROM tenure.resource r
        WHERE r.pool = _pool AND r.claimed < r.slots AND NOT r.removed AND NOT r.rests AND r.retired IS NULL
            AND r.metadata @> _wanted
        ORDER BY r.preference DESC, r.used, r.name LIMIT 1;
        IF NOT FOUND AND NOT _wait THEN
            RETURN tenure.reply('refused');
        END IF;
        INSERT INTO tenure.pool AS p (name, ordinal) VALUES (_pool, 1)
        ON CONFLICT (name) DO UPDATE SET ordinal = p.ordinal + 1 RETURNING p.ordinal INTO place;
        INSERT INTO tenure.claim AS c (pool, holder, session, process, wanted, quarantine, ordinal, group_name, number)
        VALUES (_pool, _holder, mine.id, mine.process, _wanted, _quarantine, place, _group,
            tenure.next_number(_pool, _group)) RETURNING c.* INTO claim;
        IF item.name IS NOT NULL THEN
            RETURN ROW('claimed', ARRAY[tenure.lend_resource(now, item.name, claim)],
                item.name || item.metadata)::tenure.answer;
        END IF;
    END IF;
    place := (SELECT count(*) FROM tenure.claim c WHERE c.pool = _pool AND c.resource IS NULL);
    RETURN ROW('queued', ARRAY[place, tenure.ask_again_in(now, tenure.next_rested(_pool))], NULL)::tenure.answer;
END $$;

-- -> released, left, unknown, more
CREATE FUNCTION tenure.give_back(_clock bigint, _cap bigint, _pool bytea, _holder bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'pool', _pool);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    RETURN tenure.reply(tenure.remove_claim(now, _pool, _holder, false));
END $$;

-- NULL leaves things as they are. -> ok, refused, more
CREATE FUNCTION tenure.edit_claim(
    _clock bigint, _cap bigint, _pool bytea, _holder bytea, _token bigint, _metadata bytea[], _cool_down bigint,
    _retire bytea
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'pool', _pool);
    item tenure.resource;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    SELECT r.* INTO item FROM tenure.claim c JOIN tenure.resource r ON r.pool = c.pool AND r.name = c.resource
    WHERE c.pool = _pool AND c.holder = _holder AND c.token = _token;
    IF NOT FOUND THEN
        RETURN tenure.reply('refused');
    END IF;
    item.metadata := coalesce(_metadata, item.metadata);
    item.rest_until := coalesce(now + _cool_down, item.rest_until);
    item.retired := coalesce(_retire, item.retired);
    PERFORM tenure.update_resource(now, item);
    RETURN tenure.reply('ok');
END $$;
