-- Families: the entries of tasks, their children, and the verdicts that wait for these; see engine/_families.py.
--
-- Reads and writes family, entry, task and todo, and the queues of a task, of its parent and of its children. An
-- operation waits for the lock of one queue, and tries the locks of other queues. Without a lock, the operation leaves
-- a row in todo, which the sweep does before the next operation. The sweep may wait for all locks. A user's
-- transaction has the lock of its queue only. So only the sweep has the lock of a queue and waits for the lock of
-- another queue.
--
-- A function that tells a parent something reads and saves rows of queues itself: before it is called, the caller
-- saves the row that it has, and reads it anew afterwards.
-- Needs: groups, producers, records, state, tasks

-- locks

-- Lock two queues, and wait for neither of them while the other one is locked.
CREATE FUNCTION tenure.lock_both(_one bytea, _other bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first bytea := _one;
BEGIN
    LOOP
        BEGIN
            PERFORM tenure.lock('queue', first);
            IF tenure.try_lock('queue', CASE WHEN first = _one THEN _other ELSE _one END) THEN
                RETURN;
            END IF;
            RAISE 'the other queue is locked' USING ERRCODE = 'TN001';
        EXCEPTION WHEN SQLSTATE 'TN001' THEN
            -- this has given the lock back
            first := CASE WHEN first = _one THEN _other ELSE _one END;
        END;
    END LOOP;
END $$;

-- From now on this transaction waits for the locks of queues ("wait"), or has the lock of its queue only ("only" and
-- the queue).
CREATE FUNCTION tenure.limit_locks(_to text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tenure.locks', _to, true);
END $$;

-- Lock another queue, if that can be done. False if it is to be left to the sweep.
CREATE FUNCTION tenure.enter_queue(_queue bytea) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    locks text := coalesce(current_setting('tenure.locks', true), '');
BEGIN
    IF locks = 'wait' THEN
        PERFORM tenure.lock('queue', _queue);
        RETURN true;
    ELSIF locks = '' THEN
        RETURN tenure.try_lock('queue', _queue);
    END IF;
    RETURN locks = 'only ' || encode(_queue, 'hex');
END $$;

-- rows

CREATE FUNCTION tenure.unfinished_children(_id bigint) RETURNS bigint STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT f.unfinished FROM tenure.family f WHERE f.task = _id), 0);
END $$;

-- The number of entries of a task.
CREATE FUNCTION tenure.count_entries(_id bigint) RETURNS bigint STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT f.total FROM tenure.family f WHERE f.task = _id), 0);
END $$;

-- The family of a task, made if need be.
CREATE FUNCTION tenure.family_of(_queue bytea, _id bigint, _kin boolean) RETURNS tenure.family LANGUAGE plpgsql AS $$
DECLARE
    family tenure.family;
BEGIN
    IF _kin THEN
        SELECT * INTO family FROM tenure.family f WHERE f.task = _id;
        RETURN family;
    END IF;
    INSERT INTO tenure.family (task, queue) VALUES (_id, _queue) RETURNING * INTO family;
    UPDATE tenure.task t SET kin = true, expires = t.deadline WHERE t.queue = _queue AND t.id = _id;
    RETURN family;
END $$;

-- Whether an entry is there, and not one of a former try.
CREATE FUNCTION tenure.is_there(_entry tenure.entry, _family tenure.family) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN _entry.tries >= _family.born AND _entry.life IN (0, _family.life)
        AND (_entry.kind <> 'child' OR _entry.state IN ('unfinished', 'done') OR _entry.tries = _family.tries);

-- An entry that is there; NULL if there is none.
CREATE FUNCTION tenure.entry_of(_family tenure.family, _name bytea) RETURNS tenure.entry LANGUAGE plpgsql AS $$
DECLARE
    entry tenure.entry;
BEGIN
    SELECT * INTO entry FROM tenure.entry e WHERE e.task = _family.task AND e.name = _name;
    IF FOUND AND tenure.is_there(entry, _family) THEN
        RETURN entry;
    END IF;
    RETURN NULL;
END $$;

-- entry(child or 0, 1 if it was swept, the number of its end; name, kind, state, value, queue of the child)
CREATE FUNCTION tenure.shown_entry(_entry tenure.entry) RETURNS tenure.answer LANGUAGE sql IMMUTABLE
    RETURN ROW('entry', ARRAY[coalesce(_entry.child, 0), _entry.swept::int, _entry.ended], ARRAY[
        _entry.name, _entry.kind::bytea, _entry.state::bytea, _entry.value, coalesce(_entry.queue, '')
    ])::tenure.answer;

-- The task waits for its entry no longer until a certain time.
CREATE FUNCTION tenure.forget_timeout(_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    former bigint := (SELECT f.until FROM tenure.family f WHERE f.task = _id);
BEGIN
    IF former IS NOT NULL THEN
        DELETE FROM tenure.todo t WHERE t.due = former AND t.id = _id AND t.what = 'time out';
        UPDATE tenure.family f SET until = NULL WHERE f.task = _id;
    END IF;
END $$;

-- A task, or its dead letter, has gone: so do its entries, many of them a few at a time.
CREATE FUNCTION tenure.forget_family(_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    entries bigint := (SELECT f.total FROM tenure.family f WHERE f.task = _id);
BEGIN
    PERFORM tenure.forget_timeout(_id);
    IF entries > 256 THEN
        UPDATE tenure.family f SET over = true, sweeps = false WHERE f.task = _id;
    ELSE
        DELETE FROM tenure.entry e WHERE e.task = _id;
        DELETE FROM tenure.family f WHERE f.task = _id;
    END IF;
END $$;

-- Forget up to so many entries of a family that is over. -> whether there may be more
CREATE FUNCTION tenure.forget_entries(_limit bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    family tenure.family;
    gone bigint;
BEGIN
    SELECT * INTO family FROM tenure.family f WHERE f.over ORDER BY f.task LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM tenure.entry WHERE ctid = ANY (ARRAY(
        SELECT e.ctid FROM tenure.entry e WHERE e.task = family.task ORDER BY e.name LIMIT _limit
    ));
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone < _limit THEN
        DELETE FROM tenure.family f WHERE f.task = family.task;
    END IF;
    RETURN true;
END $$;

-- The entries of the children that have failed are gone.
CREATE FUNCTION tenure.end_try(_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenure.family f SET tries = f.tries + 1 WHERE f.task = _id;
END $$;

-- what settling needs

-- A task is in no order from now on, and holds its group where the group keeps its order.
CREATE FUNCTION tenure.set_apart(_q tenure.queue, _task tenure.task, _ending boolean) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
DECLARE
    leased int := coalesce(_task.session > 0, false)::int;
    delayed int := (_task.session IS NULL AND _task.delayed)::int;
    waiting int := (_task.session IS NULL AND NOT _task.delayed)::int;
BEGIN
    UPDATE tenure.task t SET ready_at = _task.ready_at, delayed = false, attempts = _task.attempts,
        deliveries = _task.deliveries, session = 0, process = NULL, token = 0, stop = NULL, stop_ttl = NULL,
        failure = _task.failure, ending = _ending
    WHERE t.queue = _q.name AND t.id = _task.id;
    IF _q.followed THEN
        _q := tenure.notify_followers(_q, ARRAY[_task.id]);
    END IF;
    _q := tenure.count_apart(_q, _task);
    _q.suspended := _q.suspended + (NOT _ending)::int;
    _q.ending := _q.ending + _ending::int;
    PERFORM tenure.pin(_q, _task.group_name, _task.id);
    RETURN tenure.count_tasks(_q, ARRAY[_task.group_name], 1, 0, -waiting, -delayed, -leased);
END $$;

-- Keep the verdict on a task until its children, which are cancelled, and its releases have ended.
CREATE FUNCTION tenure.keep_verdict(_now bigint, _q tenure.queue, _task tenure.task, _verdict text, _result bytea, _ttl bigint)
RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenure.forget_timeout(_task.id);
    UPDATE tenure.family f SET awaited = '', prefix = '', verdict = _verdict, result = _result, ttl = _ttl,
        dropped = CASE _verdict WHEN 'done' THEN _task.token ELSE 0 END, beside = false
    WHERE f.task = _task.id;
    _q := tenure.set_apart(_q, _task, true);
    IF tenure.unfinished_children(_task.id) > 0 THEN
        PERFORM tenure.begin_sweep(_task.id, '');
        RETURN _q;
    END IF;
    PERFORM tenure.save_queue(_now, _q);
    PERFORM tenure.go_on(_now, _q.name, _task.id);
    RETURN tenure.use_queue(_now, _q.name);
END $$;

-- The task ends, or is ending until its children have ended; `end_task` says what the arguments are.
CREATE FUNCTION tenure.finish_task(
    _now bigint, _q tenure.queue, _task tenure.task, _state text, _result bytea, _ttl bigint, _own bigint
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    family tenure.family;
BEGIN
    IF NOT _task.kin THEN
        RETURN tenure.end_task(_now, _q, _task, _state, _result, _ttl, _own);
    END IF;
    SELECT * INTO family FROM tenure.family f WHERE f.task = _task.id;
    IF family.unfinished > 0 OR family.held > 0 THEN
        RETURN tenure.keep_verdict(_now, _q, _task, _state, _result, _ttl);
    ELSIF family.release AND _state NOT IN ('done', 'dead') THEN
        _result := CASE _state WHEN 'cancelled' THEN 'cancelled by an operator'::bytea
            WHEN 'expired' THEN 'its deadline has passed'::bytea ELSE _result END;
        _state := 'dead';
        _ttl := NULL;
    END IF;
    _q := tenure.end_task(_now, _q, _task, _state, _result, _ttl, _own);
    IF _state <> 'dead' THEN
        PERFORM tenure.forget_family(_task.id);
    ELSIF family.release THEN
        PERFORM tenure.forget_timeout(_task.id);
        UPDATE tenure.family f SET told = true, awaited = '', prefix = '' WHERE f.task = _task.id;
    END IF;
    IF family.parent > 0 AND NOT family.told THEN
        PERFORM tenure.save_queue(_now, _q);
        IF tenure.enter_queue(family.parent_queue) THEN
            PERFORM tenure.tell_parent(_now, family.parent_queue, family.parent, family.name, _state, _result);
        ELSE
            INSERT INTO tenure.todo (due, id, name, what, entry, state, value)
            VALUES (0, family.parent, family.parent_queue, 'told', family.name, _state, _result);
        END IF;
        _q := tenure.use_queue(_now, _q.name);
    END IF;
    RETURN _q;
END $$;

-- Suspend a task until an entry is there, for so long at most if that is above 0, or else until so many children are
-- unfinished.
-- -> the queue, and whether something is missing that the task waits for
CREATE FUNCTION tenure.suspend_task(
    _now bigint, INOUT _q tenure.queue, _task tenure.task, _entry bytea, _prefix bytea, _rest bigint, _timeout bigint,
    OUT _done boolean
) LANGUAGE plpgsql AS $$
DECLARE
    family tenure.family;
    over_at bigint := CASE WHEN _timeout > 0 THEN _now + _timeout END;
BEGIN
    _done := _entry <> '' OR _task.kin;
    IF NOT _done THEN
        RETURN;
    END IF;
    family := tenure.family_of(_q.name, _task.id, _task.kin);
    IF _entry <> '' THEN
        _done := (tenure.entry_of(family, _entry)).task IS NULL;
    ELSE
        _done := family.unfinished > _rest;
    END IF;
    IF NOT _done THEN
        RETURN;
    END IF;
    UPDATE tenure.family f SET awaited = _entry, prefix = _prefix, rest = _rest, until = over_at
    WHERE f.task = _task.id;
    IF over_at IS NOT NULL THEN
        PERFORM nextval('tenure.last_timeout');
        INSERT INTO tenure.todo (due, id, name, what) VALUES (over_at, _task.id, _q.name, 'time out');
        -- an idle taker must know, to ask in time
        _q := tenure.hint_takers(_q, 1);
    END IF;
    _task.deliveries := _task.attempts;
    _q := tenure.set_apart(_q, _task, false);
    IF _prefix <> '' AND EXISTS (
        SELECT FROM tenure.entry e WHERE e.task = _task.id AND e.tries = family.tries AND e.kind = 'child'
            AND e.state NOT IN ('unfinished', 'done') AND e.name > _prefix
            AND substr(e.name, 1, length(_prefix)) = _prefix
    ) THEN
        PERFORM tenure.sweep_failed(_task.id, _prefix);
    END IF;
END $$;

-- parents

-- A task goes on that was suspended or ending.
CREATE FUNCTION tenure.resume_task(_now bigint, _queue bytea, _task tenure.task) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue := tenure.use_queue(_now, _queue);
    before bigint := queue.takeable;
BEGIN
    PERFORM tenure.forget_timeout(_task.id);
    UPDATE tenure.family f SET awaited = '', prefix = '', verdict = NULL, sweeps = false WHERE f.task = _task.id;
    IF NOT _task.ending THEN
        _task.ready_at := least(_task.ready_at, _now);
    END IF;
    queue := tenure.return_task(_now, queue, _task);
    PERFORM tenure.save_queue(_now, tenure.offer_tasks(queue, queue.takeable - before));
END $$;

-- A child of this name has ended; the queue of the parent is locked.
CREATE FUNCTION tenure.tell_parent(
    _now bigint, _queue bytea, _id bigint, _name bytea, _state text, _result bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    is_child boolean := (SELECT e.kind = 'child' FROM tenure.entry e WHERE e.task = _id AND e.name = _name);
    family tenure.family;
    task tenure.task;
BEGIN
    UPDATE tenure.family f SET unfinished = f.unfinished - 1, ends = f.ends + is_child::int WHERE f.task = _id
    RETURNING * INTO family;
    UPDATE tenure.entry e SET state = _state, value = _result, tries = family.tries,
        ended = CASE WHEN is_child THEN family.ends ELSE 0 END
    WHERE e.task = _id AND e.name = _name;
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _queue AND t.id = _id;
    IF task.session IS DISTINCT FROM 0 THEN
        RETURN;
    ELSIF task.ending THEN
        IF family.unfinished = 0 OR family.beside THEN
            PERFORM tenure.go_on(_now, _queue, _id);
        END IF;
    ELSIF family.awaited = '' THEN
        IF family.unfinished <= family.rest THEN
            PERFORM tenure.resume_task(_now, _queue, task);
        ELSIF is_child AND _state <> 'done' AND family.prefix <> '' AND substr(_name, 1, length(family.prefix)) = family.prefix THEN
            PERFORM tenure.sweep_failed(_id, family.prefix);
        END IF;
    END IF;
END $$;

-- releases

-- A held release begins ("unfinished"), or never does ("kept", "dropped"); the queue of the owner is locked.
CREATE FUNCTION tenure.leave_held(_now bigint, _entry tenure.entry, _state text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    begins boolean := _state = 'unfinished';
BEGIN
    UPDATE tenure.entry e SET state = _state WHERE e.task = _entry.task AND e.name = _entry.name;
    UPDATE tenure.family f SET held = f.held - 1, unfinished = f.unfinished + begins::int, ran = f.ran OR begins
    WHERE f.task = _entry.task;
    IF tenure.enter_queue(_entry.queue) THEN
        PERFORM tenure.begin_or_drop(_now, _entry.queue, _entry.child, begins);
    ELSE
        INSERT INTO tenure.todo (due, id, name, what)
        VALUES (0, _entry.child, _entry.queue, CASE WHEN begins THEN 'begin' ELSE 'drop' END);
    END IF;
END $$;

-- A task that was held is ready, or gone; its queue is locked.
CREATE FUNCTION tenure.begin_or_drop(_now bigint, _queue bytea, _id bigint, _begins boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue := tenure.use_queue(_now, _queue);
    before bigint := queue.takeable;
    until bigint := _now + (SELECT f.seconds FROM tenure.family f WHERE f.task = _id);
    task tenure.task;
BEGIN
    queue.held := queue.held - 1;
    IF _begins THEN
        UPDATE tenure.task t SET ready_at = _now, deadline = until, expires = until
        WHERE t.queue = _queue AND t.id = _id RETURNING * INTO task;
        queue.put := queue.put + 1;
        queue := tenure.count_tasks(queue, ARRAY[task.group_name], 1, 1, 0, 0, 0);
        queue := tenure.return_task(_now, queue, task);
    ELSE
        DELETE FROM tenure.task t WHERE t.queue = _queue AND t.id = _id;
        PERFORM tenure.forget_family(_id);
        queue := tenure.notify_finished(queue, _id);
    END IF;
    PERFORM tenure.save_queue(_now, tenure.offer_tasks(queue, queue.takeable - before));
END $$;

-- Begin the next releases, the last first, or drop those that are handed over. -> whether there may be more
CREATE FUNCTION tenure.begin_next(_now bigint, _id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entry tenure.entry;
    family tenure.family;
BEGIN
    FOR i IN 1 .. 8 LOOP
        SELECT * INTO entry FROM tenure.entry e WHERE e.task = _id AND e.state = 'held' ORDER BY e.child DESC LIMIT 1;
        SELECT * INTO family FROM tenure.family f WHERE f.task = _id;
        IF entry.unless_done AND entry.token = family.dropped THEN
            PERFORM tenure.leave_held(_now, entry, 'dropped');
        ELSIF entry.task IS NOT NULL
                AND (family.unfinished = 0 OR family.beside AND entry.together AND family.unfinished < 8) THEN
            UPDATE tenure.family f SET beside = entry.together WHERE f.task = _id;
            PERFORM tenure.leave_held(_now, entry, 'unfinished');
        ELSE
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;

-- No child of a task that is ending is unfinished: its releases begin, and then the verdict is applied.
CREATE FUNCTION tenure.go_on(_now bigint, _queue bytea, _id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    is_final boolean := (SELECT f.verdict <> 'retry' FROM tenure.family f WHERE f.task = _id);
    family tenure.family;
    task tenure.task;
BEGIN
    IF is_final AND tenure.begin_next(_now, _id) THEN
        PERFORM tenure.begin_sweep(_id, '');
    END IF;
    SELECT * INTO family FROM tenure.family f WHERE f.task = _id;
    IF family.unfinished > 0 OR is_final AND family.held > 0 THEN
        RETURN;
    END IF;
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _queue AND t.id = _id;
    IF is_final THEN
        UPDATE tenure.family f SET sweeps = false, verdict = NULL, result = NULL, ttl = NULL WHERE f.task = _id;
        PERFORM tenure.save_queue(_now, tenure.finish_task(
            _now, tenure.use_queue(_now, _queue), task, family.verdict, family.result, family.ttl, 0));
    ELSE
        PERFORM tenure.end_try(_id);
        PERFORM tenure.resume_task(_now, _queue, task);
    END IF;
END $$;

-- sweeps

-- Visit the unfinished children whose names begin so, behind this operation.
CREATE FUNCTION tenure.begin_sweep(_id bigint, _prefix bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenure.family f SET swept = _prefix, swept_to = _prefix, sweeps = true WHERE f.task = _id;
    PERFORM set_config('tenure.sweeps', 'on', true);
    PERFORM nextval('tenure.last_timeout');
    IF coalesce(current_setting('tenure.locks', true), '') <> '' THEN
        PERFORM tenure.leave_sweeps(0);
    END IF;
END $$;

-- A child of a suspended task has failed: cancel the others, once.
CREATE FUNCTION tenure.sweep_failed(_id bigint, _prefix bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenure.family f SET prefix = '' WHERE f.task = _id;
    PERFORM tenure.begin_sweep(_id, _prefix);
END $$;

-- The sweep goes on before an operation, from that time on. There may be several such rows: who does not see that a row
-- is being deleted has to leave another row.
CREATE FUNCTION tenure.leave_sweeps(_due bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('tenure.locks', true) = 'wait' AND EXISTS (
        SELECT FROM tenure.todo t WHERE t.due = _due AND t.id = -1
    ) THEN
        RETURN;
    END IF;
    INSERT INTO tenure.todo (due, id, name, what) VALUES (_due, -1, '', 'sweep');
END $$;

-- Visit 8 of the children that are to be cancelled, and leave the others for a later operation, 10 ms
-- after the end of this one, so that what waits for this one comes first.
CREATE FUNCTION tenure.sweep_families(_now bigint, _clock bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    family tenure.family;
    entry tenure.entry;
    queue tenure.queue;
    before bigint;
    visited record;
    locked bigint[] := '{}'::bigint[];
    steps int := 8;
BEGIN
    WHILE steps > 0 LOOP
        SELECT * INTO family FROM tenure.family f
        WHERE f.sweeps AND f.task <> ALL (locked) ORDER BY f.queue, f.task LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT tenure.enter_queue(family.queue) THEN
            locked := locked || family.task;
            CONTINUE;
        END IF;
        -- as it is since the lock is ours
        SELECT * INTO family FROM tenure.family f WHERE f.task = family.task AND f.sweeps;
        CONTINUE WHEN NOT FOUND;
        steps := steps - 1;
        SELECT * INTO entry FROM tenure.entry e
        WHERE e.task = family.task AND e.state = 'unfinished' AND e.kind = 'child' AND e.name > family.swept_to
        ORDER BY e.name LIMIT 1;
        IF NOT FOUND OR substr(entry.name, 1, length(family.swept)) <> family.swept THEN
            UPDATE tenure.family f SET sweeps = false WHERE f.task = family.task;
            IF family.held > 0 AND family.unfinished = 0 AND family.verdict <> 'retry' THEN
                PERFORM tenure.go_on(_now, family.queue, family.task);
                steps := 0;
            END IF;
            CONTINUE;
        ELSIF NOT tenure.enter_queue(entry.queue) THEN
            locked := locked || family.task;
            CONTINUE;
        END IF;
        UPDATE tenure.family f SET swept_to = entry.name WHERE f.task = family.task;
        UPDATE tenure.entry e SET swept = true WHERE e.task = entry.task AND e.name = entry.name;
        queue := tenure.use_queue(_now, entry.queue);
        before := queue.takeable;
        visited := tenure.cancel_task(_now, queue, entry.child, 3600000000);
        queue := visited._q;
        PERFORM tenure.save_queue(_now, tenure.offer_tasks(queue, queue.takeable - before));
    END LOOP;
    IF current_setting('tenure.locks', true) = 'wait' THEN
        DELETE FROM tenure.todo t WHERE t.due = 0 AND t.id = -1; -- of the sweeps that these visits have begun
    END IF;
    IF EXISTS (SELECT FROM tenure.family f WHERE f.sweeps) THEN
        PERFORM tenure.leave_sweeps(CASE WHEN steps > 0 THEN 0 ELSE tenure.time(_clock) + 10000 END);
    END IF;
END $$;

-- Go on with the sweeps that this operation has begun, behind all else that it does.
CREATE FUNCTION tenure.sweep_on(_now bigint, _clock bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('tenure.sweeps', true) = 'on' THEN
        PERFORM tenure.sweep_families(_now, _clock);
    END IF;
END $$;

-- Do what other operations have left about families. -> whether there was something
CREATE FUNCTION tenure.sweep_messages(_now bigint, _cap bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    told record;
    any_told boolean := false;
BEGIN
    FOR told IN SELECT t.ctid, t.* FROM tenure.todo t
        WHERE t.due = 0 AND t.what IN ('told', 'begin', 'drop') ORDER BY t.id LIMIT _cap
    LOOP
        PERFORM tenure.lock('queue', told.name);
        DELETE FROM tenure.todo t WHERE t.ctid = told.ctid;
        IF told.what = 'told' THEN
            PERFORM tenure.tell_parent(_now, told.name, told.id, told.entry, told.state, told.value);
        ELSE
            PERFORM tenure.begin_or_drop(_now, told.name, told.id, told.what = 'begin');
        END IF;
        any_told := true;
    END LOOP;
    RETURN any_told;
END $$;

-- Go on with sweeps that were cut short, if it is time for that. -> whether it was
CREATE FUNCTION tenure.sweep_rest(_now bigint, _clock bigint, _since bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    is_time boolean;
BEGIN
    DELETE FROM tenure.todo t WHERE t.due = 0 AND t.id = -1;
    is_time := FOUND;
    DELETE FROM tenure.todo t WHERE t.due BETWEEN _since AND _now AND t.id = -1;
    IF is_time OR FOUND THEN
        PERFORM tenure.sweep_families(_now, _clock);
        RETURN true;
    END IF;
    RETURN false;
END $$;

-- Write the entries that did not come in time. -> whether there were some
CREATE FUNCTION tenure.time_out(_now bigint, _since bigint, _cap bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    late record;
    family tenure.family;
    any_late boolean := false;
BEGIN
    FOR late IN SELECT * FROM tenure.todo t
        WHERE t.due BETWEEN _since AND _now AND t.what = 'time out' ORDER BY t.due, t.name, t.id LIMIT _cap
    LOOP
        any_late := true;
        EXIT WHEN NOT tenure.step();
        PERFORM tenure.lock('queue', late.name);
        SELECT * INTO family FROM tenure.family f WHERE f.task = late.id AND f.until = late.due;
        IF FOUND THEN
            PERFORM tenure.store_entry(_now, family, family.awaited, 'signal', 'expired', '');
        END IF;
    END LOOP;
    RETURN any_late;
END $$;

-- operations

-- Keep a value or a signal, and wake the task if it waits for that.
CREATE FUNCTION tenure.store_entry(
    _now bigint, _family tenure.family, _name bytea, _kind text, _state text, _value bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
BEGIN
    UPDATE tenure.family f SET total = f.total + 1 WHERE f.task = _family.task;
    INSERT INTO tenure.entry (task, name, kind, state, value, tries, life)
    VALUES (_family.task, _name, _kind, _state, _value, _family.tries,
        CASE WHEN _family.named AND NOT (_kind = 'signal' AND _state = 'done') THEN _family.life ELSE 0 END)
    ON CONFLICT ON CONSTRAINT entry_pkey DO UPDATE SET kind = excluded.kind, state = excluded.state,
        value = excluded.value, queue = NULL, child = NULL, swept = false, ended = 0, tries = excluded.tries,
        life = excluded.life;
    IF _name <> '' AND _family.awaited = _name THEN
        SELECT * INTO task FROM tenure.task t WHERE t.queue = _family.queue AND t.id = _family.task;
        PERFORM tenure.resume_task(_now, _family.queue, task);
    END IF;
END $$;

-- Begin or keep a release that is held. -> as `set_entry`
CREATE FUNCTION tenure.change_release(_now bigint, _family tenure.family, _name bytea, _change text)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    entry tenure.entry := tenure.entry_of(_family, _name);
BEGIN
    IF entry.kind IS DISTINCT FROM 'release' THEN
        RETURN tenure.reply('unknown');
    ELSIF entry.state <> 'held' THEN
        RETURN tenure.shown_entry(entry);
    ELSIF _change = 'begin' AND EXISTS (
        SELECT FROM tenure.entry e WHERE e.task = _family.task AND e.state = 'unfinished' AND e.kind = 'child'
    ) THEN
        RETURN tenure.reply('children');
    END IF;
    PERFORM tenure.leave_held(_now, entry, CASE _change WHEN 'begin' THEN 'unfinished' ELSE 'kept' END);
    RETURN tenure.reply('ok');
END $$;

-- -> ok, entry(child, swept, ended; name, kind, state, value, queue), toomany(most), refused, requested, unknown,
-- children, more
CREATE FUNCTION tenure.set_entry(
    _clock bigint, _cap bigint, _queue bytea, _id bigint, _token bigint, _name bytea, _value bytea, _change text
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'queue', _queue);
    most constant bigint := 10000;
    task tenure.task;
    family tenure.family;
    entry tenure.entry;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _queue AND t.id = _id;
    IF _token = 0 AND _change = '' THEN
        IF NOT FOUND THEN
            RETURN tenure.reply('unknown');
        END IF;
    ELSIF NOT FOUND OR task.session IS NULL OR task.token <> _token THEN
        RETURN tenure.reply('refused');
    ELSIF task.stop > 0 AND _change = '' THEN
        RETURN tenure.reply('requested');
    END IF;
    family := tenure.family_of(_queue, _id, task.kin);
    IF _change <> '' THEN
        RETURN tenure.change_release(now, family, _name, _change);
    END IF;
    entry := tenure.entry_of(family, _name);
    IF entry.task IS NOT NULL THEN
        RETURN tenure.shown_entry(entry);
    ELSIF family.total >= most THEN
        RETURN ROW('toomany', ARRAY[most], NULL)::tenure.answer;
    END IF;
    IF _token <> 0 AND task.attempts > 0 THEN
        UPDATE tenure.task t SET deliveries = t.deliveries - t.attempts, attempts = 0
        WHERE t.queue = _queue AND t.id = _id;
    END IF;
    PERFORM tenure.store_entry(
        now, family, _name, CASE _token WHEN 0 THEN 'signal' ELSE 'value' END, 'done', _value);
    RETURN tenure.reply('ok');
END $$;

-- Keep tasks that are not put until they begin. -> their ids
CREATE FUNCTION tenure.hold_tasks(_now bigint, _queue bytea, _tasks tenure.new_tasks) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    count bigint := cardinality(_tasks.payloads);
    first bigint := tenure.new_tokens(_now, count);
BEGIN
    INSERT INTO tenure.task (id, queue, priority, ready_at, session, payload, meta, group_name, kin)
    SELECT first + n.i - 1, _queue, n.priority, _now, -1, n.payload, n.meta, coalesce(n.group_name, ''), true
    FROM unnest(_tasks.payloads, _tasks.priorities, _tasks.metas, _tasks.groups) WITH ORDINALITY
        AS n (payload, priority, meta, group_name, i);
    RETURN ARRAY(SELECT first + i FROM generate_series(0, count - 1) i);
END $$;

-- Put tasks into the queue `_to` as children of a task, or as its releases. -> accepted(id...), named(id...; state...),
-- entry(child, swept, ended; name, kind, state, value, queue), toomany(most), refused, requested, more
CREATE FUNCTION tenure.put_children(
    _clock bigint, _cap bigint, _queue bytea, _id bigint, _token bigint, _to bytea, _names bytea[],
    _tasks tenure.new_tasks, _most bigint, _held text, _together boolean
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    is_held constant boolean := _held <> '';
    its_kind constant text := CASE WHEN is_held THEN 'release' ELSE 'child' END;
    deepest constant bigint := 32;
    most constant bigint := least(_most, 10000);
    parent tenure.task;
    family tenure.family;
    entry tenure.entry;
    known record;
    put record;
    queue tenure.queue;
    accepted bigint[];
    ids bigint[];
    used bigint := 0;
BEGIN
    IF _to <> _queue THEN
        PERFORM tenure.lock_both(_queue, _to);
    END IF;
    now := tenure.enter_object(_clock, 'queue', _queue);
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    SELECT * INTO parent FROM tenure.task t WHERE t.queue = _queue AND t.id = _id;
    IF NOT FOUND OR coalesce(parent.session, 0) = 0 OR parent.token <> _token THEN
        RETURN tenure.reply('refused');
    ELSIF parent.stop > 0 THEN
        RETURN tenure.reply('requested');
    END IF;
    family := tenure.family_of(_queue, _id, parent.kin);
    SELECT f.* INTO entry FROM unnest(_names) WITH ORDINALITY n (name, i)
        CROSS JOIN LATERAL (SELECT * FROM tenure.entry o WHERE o.task = _id AND o.name = n.name LIMIT 1) f
    WHERE tenure.is_there(f, family) AND (f.kind <> its_kind OR is_held AND (f.queue <> _to OR EXISTS (
        SELECT FROM tenure.task t WHERE t.queue = _to AND t.id = f.child AND t.payload <> _tasks.payloads[n.i]
    ))) ORDER BY n.i LIMIT 1;
    IF FOUND THEN
        RETURN tenure.shown_entry(entry);
    END IF;
    SELECT coalesce(array_agg(e.child ORDER BY n.i), '{}') AS ids, count(*) FILTER (WHERE e.child IS NULL) AS new,
        count(*) FILTER (WHERE NOT e.was_there) AS more,
        array_agg(n.name ORDER BY n.i) FILTER (WHERE e.child IS NULL) AS names,
        ROW(array_agg(_tasks.payloads[n.i] ORDER BY n.i) FILTER (WHERE e.child IS NULL),
            array_agg(_tasks.priorities[n.i] ORDER BY n.i) FILTER (WHERE e.child IS NULL),
            array_agg(_tasks.delays[n.i] ORDER BY n.i) FILTER (WHERE e.child IS NULL),
            NULL,
            array_agg(_tasks.expires[n.i] ORDER BY n.i) FILTER (WHERE e.child IS NULL),
            array_agg(_tasks.metas[n.i] ORDER BY n.i) FILTER (WHERE e.child IS NULL),
            CASE WHEN _tasks.groups IS NOT NULL THEN
                array_agg(_tasks.groups[n.i] ORDER BY n.i) FILTER (WHERE e.child IS NULL)
            END, NULL,
            array_agg(least(CASE WHEN _tasks.deadlines[n.i] >= 0 THEN _tasks.deadlines[n.i] END,
                CASE WHEN NOT is_held THEN parent.deadline - now END) ORDER BY n.i) FILTER (WHERE e.child IS NULL)
            )::tenure.new_tasks AS tasks,
        array_agg(coalesce(e.state, 'held')::bytea ORDER BY n.i) AS states
    INTO known
    FROM unnest(_names) WITH ORDINALITY n (name, i) CROSS JOIN LATERAL (
        SELECT max(o.child) FILTER (WHERE tenure.is_there(o, family)) AS child, count(*) > 0 AS was_there,
            max(o.state) FILTER (WHERE tenure.is_there(o, family)) AS state
        FROM tenure.entry o WHERE o.task = _id AND o.name = n.name
    ) e;
    IF known.more > 0 AND family.total + known.more > most THEN
        RETURN ROW('toomany', ARRAY[most], NULL)::tenure.answer;
    ELSIF known.new > 0 AND family.depth >= deepest THEN
        RAISE 'task % is % levels below its root and can have no children', _id, deepest;
    END IF;
    IF is_held THEN
        UPDATE tenure.entry e SET token = _token WHERE e.task = _id AND e.name = ANY (_names) AND e.child = ANY (known.ids);
    END IF;
    IF known.new > 0 THEN
        queue := tenure.use_queue(now, _to);
        IF is_held THEN
            accepted := tenure.hold_tasks(now, _to, known.tasks);
            queue.held := queue.held + known.new;
            family.named := true;
        ELSE
            put := tenure.accept_tasks(now, queue, known.tasks, NULL, NULL, true);
            queue := put._q;
            accepted := put._ids;
        END IF;
        PERFORM tenure.save_queue(now, queue);
        UPDATE tenure.family f SET total = f.total + known.more, named = family.named,
            unfinished = f.unfinished + CASE WHEN is_held THEN 0 ELSE known.new END,
            held = f.held + CASE WHEN is_held THEN known.new ELSE 0 END
        WHERE f.task = _id;
        INSERT INTO tenure.family (task, queue, parent_queue, parent, name, depth, release, seconds)
        SELECT c.id, _to, _queue, _id, c.name, family.depth + 1, is_held, CASE WHEN is_held THEN c.deadline END
        FROM unnest(accepted, known.names, (known.tasks).deadlines) c (id, name, deadline);
        INSERT INTO tenure.entry (task, name, kind, state, queue, child, tries, life, unless_done, together, token)
        SELECT _id, c.name, its_kind, CASE WHEN is_held THEN 'held' ELSE 'unfinished' END, _to, c.id, family.tries,
            CASE WHEN family.named THEN family.life ELSE 0 END, _held = 'unless_done', _together, _token
        FROM unnest(accepted, known.names) c (id, name)
        ON CONFLICT ON CONSTRAINT entry_pkey DO UPDATE SET kind = excluded.kind, state = excluded.state, value = '',
            queue = excluded.queue, child = excluded.child, swept = false, ended = 0, tries = excluded.tries,
            life = excluded.life, unless_done = excluded.unless_done, together = excluded.together,
            token = excluded.token;
    END IF;
    ids := known.ids;
    FOR i IN 1 .. cardinality(ids) LOOP
        IF ids[i] IS NULL THEN
            used := used + 1;
            ids[i] := accepted[used];
        END IF;
    END LOOP;
    IF is_held THEN
        RETURN ROW('named', ids, known.states)::tenure.answer;
    END IF;
    RETURN ROW('accepted', ids, NULL)::tenure.answer;
END $$;
