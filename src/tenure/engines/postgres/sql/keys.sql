-- The keys of tasks: which task has one, and what becomes of a new task whose key another one has.
--
-- `about` says what a key does: what becomes of the new task, the ttl and the longest wait, each -1 for none.
-- Needs: groups, producers, records, tasks

-- The task that has a key, and whether it is waiting or delayed, and waits for no child or release; NULL for none.
CREATE FUNCTION tenure.owner_of(_now bigint, _queue bytea, _key bytea, OUT _id bigint, OUT _rests boolean)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT t.id, t.session IS NULL AND NOT (t.kin AND EXISTS (
        SELECT FROM tenure.family f WHERE f.task = t.id AND f.unfinished + f.held > 0)) INTO _id, _rests
    FROM tenure.task t WHERE t.queue = _queue AND t.key = _key;
    IF NOT FOUND THEN
        SELECT k.task, false INTO _id, _rests FROM tenure.kept_key k
        WHERE k.queue = _queue AND k.key = _key AND k.until > _now;
    END IF;
END $$;

-- Of each task whether it is put beside the task that has its key; of two tasks with a key, only one is.
CREATE FUNCTION tenure.new_ones(_now bigint, _queue bytea, _tasks tenure.new_tasks) RETURNS boolean[]
LANGUAGE plpgsql AS $$
DECLARE
    key bytea;
    owner record;
    is_new boolean;
    seen bytea[] := '{}'::bytea[];
    found boolean[] := '{}'::boolean[];
BEGIN
    FOR i IN 1 .. cardinality(_tasks.keys) LOOP
        key := _tasks.keys[i];
        is_new := key IS NULL;
        IF NOT is_new AND key <> ALL (seen) THEN
            owner := tenure.owner_of(_now, _queue, key);
            is_new := owner._id IS NULL OR (NOT owner._rests AND _tasks.about[i] LIKE 'replace %');
            IF is_new THEN
                seen := array_append(seen, key);
            END IF;
        END IF;
        found := array_append(found, is_new);
    END LOOP;
    RETURN found;
END $$;

-- What has the keys of these tasks. -> of each the task in its way (0: some task), or NULL if it is new; of each the
-- first of these tasks that has its key, or NULL; and how many are new
CREATE FUNCTION tenure.find_twins(
    _now bigint, _queue bytea, _tasks tenure.new_tasks, OUT _twins bigint[], OUT _firsts bigint[], OUT _new bigint
) LANGUAGE plpgsql AS $$
BEGIN
    IF _tasks.about IS NOT NULL THEN
        SELECT array_agg(CASE WHEN NOT u.is_new THEN 0 END ORDER BY u.i), count(*) FILTER (WHERE u.is_new)
        INTO _twins, _new
        FROM unnest(tenure.new_ones(_now, _queue, _tasks)) WITH ORDINALITY AS u (is_new, i);
        RETURN;
    END IF;
    SELECT array_agg(t.id ORDER BY k.i), array_agg(k.first ORDER BY k.i),
        count(*) FILTER (WHERE t.id IS NULL AND k.first = k.i)
    INTO _twins, _firsts, _new
    FROM (
        SELECT u.i, u.key, CASE WHEN u.key IS NULL THEN u.i ELSE min(u.i) OVER (PARTITION BY u.key) END AS first
        FROM unnest(_tasks.keys) WITH ORDINALITY AS u (key, i)
    ) k LEFT JOIN LATERAL (
        SELECT twin.id FROM tenure.task twin WHERE twin.queue = _queue AND twin.key = k.key
        UNION ALL
        SELECT kept.task FROM tenure.kept_key kept
        WHERE kept.queue = _queue AND kept.key = k.key AND kept.until > _now
        LIMIT 1
    ) t ON true;
END $$;

-- The task has a key for so long at least, or while it is unfinished.
CREATE FUNCTION tenure.keep_key(_now bigint, _q tenure.queue, _key bytea, _id bigint, _ttl bigint) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
BEGIN
    IF _ttl < 0 THEN
        DELETE FROM tenure.kept_key k WHERE k.queue = _q.name AND k.key = _key AND k.task <> _id;
        RETURN _q;
    END IF;
    INSERT INTO tenure.kept_key AS k (queue, key, task, until) VALUES (_q.name, _key, _id, _now + _ttl)
    ON CONFLICT ON CONSTRAINT kept_key_pkey DO UPDATE SET task = excluded.task,
        until = CASE WHEN k.task = excluded.task THEN greatest(k.until, excluded.until) ELSE excluded.until END;
    _q.first_kept := least(_q.first_kept, _now + _ttl);
    -- more than come
    _q := tenure.forget_keys(_now, _q, 2);
    _q.keep_until := greatest(_q.keep_until, _now + _ttl);
    _q.check_at := least(_q.check_at, _now + _ttl);
    RETURN _q;
END $$;

-- Forget keys of a queue that are over, at most so many.
CREATE FUNCTION tenure.forget_keys(_now bigint, _q tenure.queue, _limit bigint) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM tenure.kept_key WHERE ctid = ANY (ARRAY(
        SELECT k.ctid FROM tenure.kept_key k WHERE k.queue = _q.name AND k.until BETWEEN _q.first_kept AND _now
        ORDER BY k.until LIMIT _limit
    ));
    SELECT k.until INTO _q.first_kept FROM tenure.kept_key k
    WHERE k.queue = _q.name AND k.until >= _q.first_kept ORDER BY k.until LIMIT 1;
    _q.first_kept := coalesce(_q.first_kept, 9223372036854775807);
    RETURN _q;
END $$;

-- Replace a task that no taker holds, as if the new one were put and the old one removed.
CREATE FUNCTION tenure.replace_task(
    _now bigint, _q tenure.queue, _id bigint, _payload bytea, _priority bigint, _delay bigint, _expires bigint,
    _meta bytea, _group bytea, _max_wait bigint, _deadline bigint
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    former tenure.task;
    first bigint := _now;
    ready int;
BEGIN
    SELECT * INTO former FROM tenure.task t WHERE t.queue = _q.name AND t.id = _id;
    IF former.kin THEN
        -- its entries are gone
        UPDATE tenure.family f SET tries = f.tries + 1, born = f.tries + 1 WHERE f.task = _id;
    END IF;
    IF former.attempts = 0 AND former.deliveries = 0 THEN
        first := coalesce(former.first_put, _now);
    END IF;
    IF _max_wait >= 0 THEN
        _delay := greatest(0, least(_delay, first + _max_wait - _now));
    END IF;
    ready := (_delay = 0)::int;
    UPDATE tenure.task t SET payload = _payload, priority = _priority, ready_at = _now + _delay, delayed = _delay > 0,
        attempts = 0, deliveries = 0, keep = false, deadline = CASE WHEN _deadline >= 0 THEN _now + _deadline END,
        expires = _now + least(CASE WHEN _expires >= 0 THEN _expires END, CASE WHEN _deadline >= 0 THEN _deadline END),
        progress = '', failure = NULL, meta = _meta, group_name = _group, first_put = first
    WHERE t.queue = _q.name AND t.id = _id;
    UPDATE tenure.task_group g SET pinned = 0
    WHERE _q.round > 0 AND g.ctid = tenure.place_of_group(_q, former.group_name) AND g.pinned = _id;
    _q := tenure.count_tasks(
        _q, ARRAY[former.group_name], 1, 0, -(NOT former.delayed)::int, -former.delayed::int, 0);
    _q := tenure.change_group(_q, former.group_name, _group);
    _q := tenure.count_tasks(
        _q, ARRAY[_group], 1, 0, ready, 1 - ready, 0, ARRAY[_priority], CASE ready WHEN 1 THEN _now END, _id);
    _q.first_due := least(_q.first_due, _now);
    IF _q.followed THEN
        _q := tenure.notify_followers(_q, ARRAY[_id]);
    END IF;
    IF _q.producers > 0 THEN
        _q := tenure.make_room(_q, ARRAY[former.group_name]);
    END IF;
    RETURN _q;
END $$;

-- A task loses its key. If it is leased, it does not go back; any other one is cancelled.
CREATE FUNCTION tenure.supersede_task(_now bigint, _q tenure.queue, _key bytea) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
DECLARE
    former tenure.task;
BEGIN
    UPDATE tenure.task t SET key = NULL, stop = coalesce(t.stop, 0),
        stop_ttl = CASE WHEN t.stop IS NULL THEN 3600000000 ELSE t.stop_ttl END
    WHERE t.queue = _q.name AND t.key = _key RETURNING * INTO former;
    IF former.kin AND coalesce(former.session, 0) = 0 THEN
        RETURN (tenure.cancel_task(_now, _q, former.id, 3600000000))._q;
    END IF;
    RETURN _q;
END $$;

-- Tasks of which some have keys that do more than to refuse, one after the other. -> the queue, and of each task
-- its id, or below zero the id of the task in its way
CREATE FUNCTION tenure.accept_keyed_tasks(
    _now bigint, INOUT _q tenure.queue, _tasks tenure.new_tasks, OUT _ids bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    takers bigint := _q.takers;
    due bigint;
    before bigint;
    owner record;
    about text[];
    accepted record;
BEGIN
    IF takers > 0 THEN
        due := tenure.next_due(_q);
        before := _q.takeable;
    END IF;
    -- they are offered all tasks together
    _q.takers := 0;
    _ids := '{}';
    FOR i IN 1 .. cardinality(_tasks.payloads) LOOP
        about := string_to_array(_tasks.about[i], ' ');
        owner := tenure.owner_of(_now, _q.name, _tasks.keys[i]);
        IF owner._id IS NOT NULL AND (owner._rests OR about[1] <> 'replace') THEN
            IF about[1] = 'replace' THEN
                _q := tenure.replace_task(_now, _q, owner._id, _tasks.payloads[i], _tasks.priorities[i],
                    coalesce(_tasks.delays[i], 0), _tasks.expires[i], _tasks.metas[i], coalesce(_tasks.groups[i], ''),
                    about[3]::bigint, _tasks.deadlines[i]);
                IF about[2]::bigint >= 0 THEN
                    _q := tenure.keep_key(_now, _q, _tasks.keys[i], owner._id, about[2]::bigint);
                END IF;
            END IF;
            _ids := array_append(_ids, CASE about[1] WHEN 'refuse' THEN -owner._id ELSE owner._id END);
            CONTINUE;
        END IF;
        IF owner._id IS NOT NULL THEN
            _q := tenure.supersede_task(_now, _q, _tasks.keys[i]);
        END IF;
        IF about[3]::bigint >= 0 THEN
            _tasks.delays[i] := least(coalesce(_tasks.delays[i], 0), about[3]::bigint);
        END IF;
        accepted := tenure.accept_tasks(_now, _q, tenure.some_tasks(_tasks, i, i), NULL, NULL);
        _q := accepted._q;
        _ids := _ids || accepted._ids;
        IF _tasks.keys[i] IS NOT NULL THEN
            _q := tenure.keep_key(_now, _q, _tasks.keys[i], accepted._ids[1], about[2]::bigint);
        END IF;
    END LOOP;
    _q.takers := takers;
    IF takers > 0 THEN
        _q := tenure.offer_sooner(tenure.offer_tasks(_q, _q.takeable - before), due);
    END IF;
END $$;
