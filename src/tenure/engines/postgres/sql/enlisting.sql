-- Operations in the user's transaction, which keeps the queue locked until it ends.
--
-- Nothing is cleared up here, which would take locks that a user's transaction might keep for long: due rows stay
-- so until the engine's own next operation.
-- Needs: families, groups, keys, producers, state, takers, tasks

-- Lock the queue. The server ends a transaction that then stands idle for longer than `_idle` milliseconds, since a
-- frozen process would block all others. -> the time
CREATE FUNCTION tenure.join_queue(_clock bigint, _queue bytea, _idle bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    idle interval := current_setting('idle_in_transaction_session_timeout')::interval;
BEGIN
    -- 0 is for ever
    IF idle NOT BETWEEN interval '1 ms' AND _idle * interval '1 ms' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', _idle::text, true);
    END IF;
    -- an older snapshot would not show what others did before they gave up the lock
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE 'tenure: a put or a completion needs a READ COMMITTED transaction, this one is %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'feature_not_supported';
    END IF;
    PERFORM tenure.lock('queue', _queue);
    PERFORM tenure.limit_locks('only ' || encode(_queue, 'hex'));
    RETURN tenure.time(_clock);
END $$;

-- Settle tasks. -> the tokens of those that came too late, and of those with unfinished children; NULL: the session is
-- gone
CREATE FUNCTION tenure.settle_in_transaction(
    _clock bigint, _session bytea, _queue bytea, _settle tenure.settlements
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    queue tenure.queue;
    before bigint;
    settled record;
    parents bigint[];
    rest tenure.settlements := _settle;
BEGIN
    PERFORM tenure.keep_session(_session);
    now := tenure.join_queue(_clock, _queue,
        coalesce((SELECT s.ttl / 1000 FROM tenure.session s WHERE s.name = _session ORDER BY s.page DESC LIMIT 1),
            1000));
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session ORDER BY s.page DESC LIMIT 1;
    IF NOT FOUND OR mine.expires <= now THEN
        RETURN NULL;
    END IF;
    queue := tenure.use_queue(now, _queue);
    before := queue.takeable;
    parents := ARRAY(SELECT u.token FROM unnest(_settle.ids, _settle.tokens) u (id, token)
        CROSS JOIN LATERAL (SELECT t.kin FROM tenure.task t WHERE t.queue = _queue AND t.id = u.id LIMIT 1) f
        WHERE f.kin AND tenure.unfinished_children(u.id) > 0);
    IF parents <> '{}' THEN
        SELECT array_agg(u.id ORDER BY u.i), array_agg(u.token ORDER BY u.i), array_agg(u.verdict ORDER BY u.i),
            array_agg(u.result ORDER BY u.i), array_agg(u.delay ORDER BY u.i), array_agg(u.ttl ORDER BY u.i),
            array_agg(u.failure ORDER BY u.i)
        INTO rest FROM unnest(_settle.ids, _settle.tokens, _settle.verdicts, _settle.results, _settle.delays,
            _settle.ttls, _settle.failures) WITH ORDINALITY u (id, token, verdict, result, delay, ttl, failure, i)
        WHERE u.token <> ALL (parents);
        IF rest.ids IS NULL THEN
            RETURN parents;
        END IF;
    END IF;
    settled := tenure.settle_tasks(now, queue, mine, rest);
    queue := settled._q;
    PERFORM tenure.save_queue(now, tenure.offer_tasks(queue, queue.takeable - before));
    IF parents = '{}' THEN
        RETURN settled._refused;
    END IF;
    RETURN ARRAY(SELECT u.token FROM unnest(_settle.tokens) WITH ORDINALITY u (token, i)
        WHERE u.token = ANY (parents || settled._refused) ORDER BY u.i);
END $$;

-- Without `_ttl` the record is kept for good. -> ok, gone, refused, children
CREATE FUNCTION tenure.complete(
    _clock bigint, _session bytea, _queue bytea, _id bigint, _token bigint, _verdict text, _result bytea, _delay bigint,
    _ttl bigint, _failure bytea
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    refused bigint[] := tenure.settle_in_transaction(_clock, _session, _queue, ROW(ARRAY[_id], ARRAY[_token],
        ARRAY[_verdict], ARRAY[_result], ARRAY[_delay], ARRAY[coalesce(_ttl, -1)], ARRAY[_failure]));
BEGIN
    RETURN tenure.reply(CASE WHEN refused IS NULL THEN 'gone' WHEN refused = '{}' THEN 'ok' WHEN EXISTS (
        SELECT FROM tenure.task t WHERE t.queue = _queue AND t.id = _id AND t.token = _token AND t.kin
    ) THEN 'children' ELSE 'refused' END);
END $$;

-- With a `_ttl` below zero the records are kept for good. -> gone, completed(the tokens of those that came too late)
CREATE FUNCTION tenure.complete_all(
    _clock bigint, _session bytea, _queue bytea, _ids bigint[], _tokens bigint[], _results bytea[], _ttl bigint
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    size int[] := ARRAY[cardinality(_ids)];
    refused bigint[] := tenure.settle_in_transaction(_clock, _session, _queue, ROW(_ids, _tokens,
        array_fill('done'::text, size), _results, array_fill(0::bigint, size), array_fill(_ttl, size), NULL));
BEGIN
    RETURN CASE WHEN refused IS NULL THEN tenure.reply('gone') ELSE ROW('completed', refused, NULL)::tenure.answer END;
END $$;

-- An expiry or a deadline below zero is none; `_about` says what a key does. -> accepted(id, or -twin), refused
CREATE FUNCTION tenure.put_one(
    _clock bigint, _queue bytea, _payload bytea, _priority bigint, _delay bigint, _key bytea,
    _expires bigint, _meta bytea DEFAULT NULL, _group bytea DEFAULT '', _about text DEFAULT 'refuse -1 -1',
    _deadline bigint DEFAULT -1
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    queue tenure.queue;
    tasks tenure.new_tasks := ROW(ARRAY[_payload], ARRAY[_priority], ARRAY[_delay],
        CASE WHEN _key IS NOT NULL THEN ARRAY[_key] END, ARRAY[_expires], ARRAY[_meta],
        CASE WHEN _group <> '' THEN ARRAY[_group] END, CASE WHEN _key IS NOT NULL THEN ARRAY[_about] END,
        CASE WHEN _deadline >= 0 THEN ARRAY[_deadline] END);
    new_ones bigint := 1;
    accepted record;
BEGIN
    now := tenure.join_queue(_clock, _queue, 30000);
    queue := tenure.use_queue(now, _queue);
    queue := tenure.admit_producers(queue);
    IF _key IS NOT NULL THEN
        new_ones := (SELECT f._new FROM tenure.find_twins(now, _queue, tasks) f);
    END IF;
    IF tenure.is_full(queue, tasks.groups, NULL, NULL, new_ones) THEN
        PERFORM tenure.save_queue(now, queue);
        RETURN tenure.reply('refused');
    END IF;
    IF _key IS NULL THEN
        accepted := tenure.accept_tasks(now, queue, tasks, NULL, NULL);
    ELSE
        accepted := tenure.accept_keyed_tasks(now, queue, tasks);
    END IF;
    PERFORM tenure.save_queue(now, accepted._q);
    RETURN ROW('accepted', accepted._ids, NULL)::tenure.answer;
END $$;

-- `put` is public. It runs with the rights of the schema's owner, so that a role needs the right to call it only. A
-- change of its arguments needs a step that drops it, and passes its grants on.

CREATE FUNCTION tenure.checked_name(_argument text, _name text) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    name bytea := convert_to(_name, 'UTF8');
BEGIN
    IF name IS NULL OR length(name) NOT BETWEEN 1 AND 512 THEN
        RAISE 'tenure.put: % must have 1 to 512 bytes in UTF-8, not %', _argument, coalesce(length(name)::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN name;
END $$;

CREATE FUNCTION tenure.checked_duration(_argument text, _seconds numeric, _least bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    IF _seconds * 1000000 NOT BETWEEN _least AND 1000000000000000 THEN
        RAISE 'tenure.put: % must be % 0 seconds and at most 1000000000, not %',
            _argument, CASE _least WHEN 0 THEN 'at least' ELSE 'above' END, _seconds
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN round(_seconds * 1000000);
END $$;

-- -> the id of the task, or of the task that is kept or replaced
CREATE FUNCTION tenure.put(
    queue text, payload jsonb, key text DEFAULT NULL, on_duplicate text DEFAULT 'refuse', delay interval DEFAULT NULL,
    at timestamptz DEFAULT NULL, priority bigint DEFAULT 0, group_name text DEFAULT NULL, expires interval DEFAULT NULL,
    deadline interval DEFAULT NULL, namespace text DEFAULT 'tenure'
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name constant bytea := tenure.checked_name('namespace', namespace) || ':queue:'
        || tenure.checked_name('queue', queue);
    -- compact, as Python writes it: a blank follows each colon and comma outside of strings
    data constant bytea := convert_to(
        regexp_replace(payload::text, '("(?:[^"\\]|\\.)*"|[:,]) ?', '\1', 'g'), 'UTF8');
    until constant numeric := CASE WHEN at IS NOT NULL
        THEN greatest(extract(epoch FROM at) - extract(epoch FROM clock_timestamp()), 0) END;
    problem constant text := CASE
        WHEN position(':' IN namespace) > 0 THEN 'namespace must not have a colon: ' || namespace
        WHEN data IS NULL THEN 'payload must not be NULL; the JSON value is ''null'''
        WHEN length(data) > 1048576 THEN format('payload must have at most 1048576 bytes, not %s', length(data))
        WHEN on_duplicate IS NULL OR on_duplicate NOT IN ('refuse', 'keep', 'replace')
            THEN format('on_duplicate must be refuse, keep or replace, not %s', coalesce(on_duplicate, 'NULL'))
        WHEN delay <> interval '0' AND at IS NOT NULL THEN 'a put has a delay or at, not both'
        WHEN priority IS NULL OR abs(priority::numeric) > 2147483647
            THEN format('priority must be from -2147483647 to 2147483647, not %s', coalesce(priority::text, 'NULL'))
        END;
    before constant tenure.queue := tenure.read_queue(tenure.time(NULL), name);
    answer tenure.answer;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE 'tenure.put: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    answer := tenure.put_one(
        NULL, name, data, priority,
        coalesce(tenure.checked_duration('at', until, 0),
            tenure.checked_duration('delay', extract(epoch FROM delay), 0), 0),
        CASE WHEN key IS NOT NULL THEN tenure.checked_name('key', key) END,
        coalesce(tenure.checked_duration('expires', extract(epoch FROM expires), 1), -1), NULL,
        CASE WHEN group_name IS NULL THEN '' ELSE tenure.checked_name('group_name', group_name) END,
        format('%s %s -1', on_duplicate,
            coalesce(CASE WHEN before.revision > 0 THEN tenure.setting_duration(name, 'keys') END, -1)),
        coalesce(tenure.checked_duration('deadline', extract(epoch FROM deadline), 1), -1));
    IF answer.word = 'refused' THEN
        RAISE 'tenure.put: the queue % is full, or the group: at most % tasks are unfinished', queue,
            coalesce(before.max_size, 10000) USING ERRCODE = 'configuration_limit_exceeded';
    ELSIF answer.n[1] < 0 THEN
        RAISE 'tenure.put: task % of the queue % has the key %', -answer.n[1], queue, key
            USING ERRCODE = 'unique_violation', DETAIL = -answer.n[1];
    END IF;
    RETURN answer.n[1];
END $$;
