-- Scans: pages of the rows of an index. `scan` returns index(limit; index), then what a function returns that reads an index:
-- page(...), which says more of the object, and rows: row(...), or skip(...), which is passed over; one more than the page
-- has room for. A row ends with its place in the index, which the client sends to go on behind it.
-- Needs: families, holds, keys, paces, rates, records, sessions, state, tasks

-- The holders of a key and its waiters. -> page(capacity, used, meeting), row(token, weight, age, 1 if it waits, token or place in the
-- line; process, holder, value)
CREATE FUNCTION tenure.list_holders(_now bigint, _key bytea, _after bigint[], _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    line tenure.line;
    listed bigint := 0;
BEGIN
    line := tenure.line_of(_key);
    RETURN NEXT ROW('page', ARRAY[coalesce(line.capacity, 0), coalesce(line.used, 0), coalesce(line.meeting, 0)],
        NULL)::tenure.answer;
    IF coalesce(_after[1], 0) = 0 THEN
        RETURN QUERY SELECT 'row', ARRAY[h.token, h.weight, greatest(0, _now - h.since), 0, h.token],
                ARRAY[h.process, h.holder, h.value]
            FROM tenure.hold h WHERE h.key = _key AND h.token > 0 AND h.token > coalesce(_after[2], 0)
            ORDER BY h.token LIMIT _limit + 1;
        GET DIAGNOSTICS listed = ROW_COUNT;
        _after := '{}';
    END IF;
    RETURN QUERY SELECT 'row', ARRAY[h.token, h.weight, greatest(0, _now - h.since), 1, h.ordinal],
            ARRAY[h.process, h.holder, h.value]
        FROM tenure.hold h WHERE h.key = _key AND h.token = 0 AND h.ordinal > coalesce(_after[2], -1)
        ORDER BY h.ordinal LIMIT _limit + 1 - listed;
END $$;

-- -> page(waiting), row(preference, token, rest, slots, claimed; name, state, process, reason, metadata..., name)
CREATE FUNCTION tenure.list_resources(_now bigint, _pool bytea, _after bytea, _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT 'page', ARRAY[count(*)], NULL::bytea[] FROM tenure.claim c
        WHERE c.pool = _pool AND c.resource IS NULL;
    RETURN QUERY SELECT 'row',
        ARRAY[r.preference, r.token, CASE WHEN r.rests THEN greatest(0, r.rest_until - _now) ELSE 0 END,
            r.slots, r.claimed],
        ARRAY[
            r.name,
            CASE WHEN r.removed OR r.claimed >= r.slots THEN 'claimed' WHEN r.retired IS NOT NULL THEN 'retired'
                WHEN r.rests THEN 'resting' ELSE 'free' END::bytea,
            coalesce(r.process, ''),
            coalesce(r.retired, '')
        ] || r.metadata || r.name
        FROM tenure.resource r WHERE r.pool = _pool AND r.name > _after ORDER BY r.name LIMIT _limit + 1;
END $$;

-- -> row(; held off, held, waits, then name and debt of each limit)
CREATE FUNCTION tenure.limiter_status(_now bigint, _key bytea) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    at double precision := _now / 1e6::double precision;
    limiter tenure.limiter := tenure.limiter_of(at, _key);
    clock double precision := greatest(at, limiter.held_until) - limiter.held;
    status bytea[] := ARRAY[greatest(0, limiter.held_until - at)::text::bytea, limiter.held::text::bytea,
        (CASE WHEN limiter.last_due > clock + 1e-6 THEN limiter.last_due + limiter.held - at ELSE 0 END)::text::bytea];
BEGIN
    FOR i IN 1 .. cardinality(limiter.names) LOOP
        IF limiter.ends[i] > clock THEN
            status := status || limiter.names[i] || ((limiter.ends[i] - clock) * limiter.rates[i])::text::bytea;
        END IF;
    END LOOP;
    RETURN ROW('row', NULL, status)::tenure.answer;
END $$;

-- A record, and of a task with a family or a deadline also the parent, how many children are unfinished, 1 if it has
-- releases, and the time that is left, if it has a deadline; and the queue of the parent.
CREATE FUNCTION tenure.with_family(_record tenure.answer, _id bigint, _kin boolean, _left bigint) RETURNS tenure.answer
LANGUAGE plpgsql STABLE AS $$
DECLARE
    family tenure.family;
BEGIN
    IF _kin THEN
        SELECT * INTO family FROM tenure.family f WHERE f.task = _id AND NOT f.over;
    END IF;
    IF family.task IS NOT NULL OR _left IS NOT NULL THEN
        _record.n := _record.n || ARRAY[coalesce(family.parent, 0), coalesce(family.unfinished, 0),
            coalesce(family.named, false)::int]
            || CASE WHEN _left IS NOT NULL THEN ARRAY[_left] END;
        _record.b := _record.b || coalesce(family.parent_queue, '');
    END IF;
    RETURN _record;
END $$;

-- A task as it is shown: row(seq, id, priority, attempts, deliveries, age, ran or -1; state, payload, key or NULL, result,
-- progress, failure, meta, group), see `with_family`
CREATE FUNCTION tenure.record_of(_now bigint, _state text, _task tenure.task) RETURNS tenure.answer
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN tenure.with_family(ROW('row',
        ARRAY[0, _task.id, _task.priority, _task.attempts, _task.deliveries, greatest(0, _now - _task.ready_at),
            CASE WHEN _task.token > 0 THEN greatest(0, _now - _task.token) ELSE -1 END],
        ARRAY[_state::bytea, _task.payload, _task.key, '', _task.progress, coalesce(_task.failure, ''),
            coalesce(_task.meta, ''), _task.group_name])::tenure.answer, _task.id, _task.kin,
        CASE WHEN _task.deadline IS NOT NULL THEN greatest(0, _task.deadline - _now) END);
END $$;

-- The same, of a task that has ended.
CREATE FUNCTION tenure.record_of(_now bigint, _ended tenure.ended) RETURNS tenure.answer
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN tenure.with_family(ROW('row',
        ARRAY[_ended.seq, _ended.id, _ended.priority, _ended.attempts, _ended.deliveries,
            greatest(0, _now - _ended.ended_at),
            CASE WHEN _ended.token > 0 THEN greatest(0, _ended.ended_at - _ended.token) ELSE -1 END],
        ARRAY[_ended.state::bytea, _ended.payload, _ended.key, _ended.result, coalesce(_ended.progress, ''),
            coalesce(_ended.failure, ''), coalesce(_ended.meta, ''), _ended.group_name])::tenure.answer, _ended.id,
        _ended.kin AND _ended.state = 'dead', NULL);
END $$;

-- The task with the id. -> page(again), row(as `record_of`)
CREATE FUNCTION tenure.one_task(_now bigint, _queue bytea, _id bigint, _watcher tenure.session)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
    ended tenure.ended;
    due bigint;
BEGIN
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _queue AND t.id = _id;
    IF FOUND THEN
        IF _watcher.id IS NOT NULL THEN
            PERFORM tenure.subscribe_once('change', _queue, _id, _watcher);
        END IF;
        IF task.session IS NULL THEN
            due := least(CASE WHEN task.ready_at > _now THEN task.ready_at END, task.expires);
        ELSIF task.deadline > _now THEN
            due := task.deadline;
        END IF;
        RETURN NEXT ROW('page', ARRAY[tenure.ask_again_in(_now, due)], NULL)::tenure.answer;
        RETURN NEXT tenure.record_of(_now, tenure.state_of(_now, task), task);
        RETURN;
    END IF;
    RETURN NEXT ROW('page', ARRAY[tenure.ask_again_in(_now, NULL)], NULL)::tenure.answer;
    -- by the id alone: a plan made while the table was empty may take the index on queue and state
    SELECT * INTO ended FROM tenure.ended e WHERE e.id = _id;
    IF ended.queue = _queue AND (ended.expires IS NULL OR ended.expires > _now) THEN
        RETURN NEXT tenure.record_of(_now, ended);
    END IF;
END $$;

-- The tasks of a queue in a state. -> page(), row(as `record_of`, then the place: as in `list_tasks`, or the seq)
CREATE FUNCTION tenure.list_records(
    _now bigint, _queue bytea, _state text, _after bigint[], _group bytea, _limit bigint
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    RETURN NEXT tenure.reply('page');
    IF _state IN ('ended', 'done', 'dead', 'discarded', 'cancelled', 'expired') THEN
        ids := ARRAY(
            SELECT e.id
            FROM unnest(CASE _state WHEN 'ended' THEN ARRAY['done', 'dead', 'discarded', 'cancelled', 'expired']
                    ELSE ARRAY[_state] END) s (state)
                CROSS JOIN LATERAL (
                    SELECT a.id, a.seq FROM tenure.ended a
                    WHERE a.queue = _queue AND a.state = s.state AND a.seq > coalesce(_after[1], 0)
                    ORDER BY a.seq LIMIT _limit + 1
                ) e
            ORDER BY e.seq LIMIT _limit + 1
        );
        -- outdated ones that are not forgotten yet are passed over
        RETURN QUERY
            SELECT CASE WHEN (f.e).expires <= _now THEN 'skip' ELSE 'row' END, r.n || (f.e).seq, r.b
            FROM unnest(ids) WITH ORDINALITY i (id, n)
                CROSS JOIN LATERAL (SELECT e FROM tenure.ended e WHERE e.id = i.id LIMIT 1) f
                CROSS JOIN LATERAL tenure.record_of(_now, f.e) r
            ORDER BY i.n;
    ELSE
        ids := ARRAY(SELECT t.id FROM tenure.list_tasks(_now, _queue, _state, _group, _after, _limit + 1) t);
        RETURN QUERY
            SELECT 'row',
                r.n || CASE _state WHEN 'waiting' THEN ARRAY[(f.t).priority, (f.t).ready_at, (f.t).id]
                    WHEN 'delayed' THEN ARRAY[(f.t).ready_at, (f.t).id] WHEN 'leased' THEN ARRAY[(f.t).token]
                    ELSE ARRAY[(f.t).id] END,
                r.b || CASE _state WHEN 'waiting' THEN ARRAY[(f.t).group_name] ELSE '{}' END
            FROM unnest(ids) WITH ORDINALITY i (id, n)
                CROSS JOIN LATERAL (SELECT t FROM tenure.task t WHERE t.queue = _queue AND t.id = i.id LIMIT 1) f
                CROSS JOIN LATERAL tenure.record_of(_now, _state, f.t) r
            ORDER BY i.n;
    END IF;
END $$;

-- The groups of a queue. -> page(), row(waiting, delayed, leased, starts_in, held_off, weight in millionths, unfinished;
-- name, name)
CREATE FUNCTION tenure.list_groups(_now bigint, _queue bytea, _unfinished bigint, _name bytea, _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
BEGIN
    RETURN NEXT tenure.reply('page');
    RETURN QUERY SELECT 'row', ARRAY[g.waiting, g.live - g.waiting - g.leased, g.leased,
            tenure.starts_in(_now, g.starts_at),
            CASE WHEN g.paced_at IS NULL THEN 0 ELSE tenure.starts_in(_now, g.starts_at) END,
            round(1e6 / g.cost)::bigint, g.live], ARRAY[g.name, g.name]
        FROM tenure.task_group g
        WHERE g.queue = _queue AND g.name <> '' AND g.live > 0
            AND (_unfinished IS NULL OR g.live < _unfinished OR g.live = _unfinished AND g.name > _name)
        ORDER BY g.live DESC, g.name LIMIT _limit + 1;
END $$;

-- The number of entries of a task that a page has room for, which ends with the entry that makes their values exceed
-- ENTRY_BYTES.
CREATE FUNCTION tenure.room_for_entries(_family tenure.family, _after bytea, _limit bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    entry_bytes constant bigint := 4194304;
    entry tenure.entry;
    size bigint := 0;
    count bigint := 0;
BEGIN
    FOR entry IN SELECT * FROM tenure.entry e WHERE e.task = _family.task AND e.name > _after
        ORDER BY e.name LIMIT _limit
    LOOP
        count := count + 1;
        IF tenure.is_there(entry, _family) THEN
            size := size + length(entry.value);
            EXIT WHEN size > entry_bytes;
        END IF;
    END LOOP;
    RETURN count;
END $$;

-- The entries of a task. -> page(), row(as `shown_entry`, name)
CREATE FUNCTION tenure.list_entries(_family tenure.family, _after bytea, _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
BEGIN
    RETURN NEXT tenure.reply('page');
    RETURN QUERY SELECT CASE WHEN tenure.is_there(e, _family) THEN 'row' ELSE 'skip' END, s.n, s.b || e.name
        FROM tenure.entry e CROSS JOIN LATERAL tenure.shown_entry(e) s
        WHERE e.task = _family.task AND e.name > _after ORDER BY e.name LIMIT _limit + 1;
END $$;

-- The unfinished children of a task. -> page(), row(as `shown_entry`, name)
CREATE FUNCTION tenure.list_unfinished_children(_family tenure.family, _after bytea, _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
BEGIN
    RETURN NEXT tenure.reply('page');
    RETURN QUERY SELECT 'row', s.n, s.b || e.name
        FROM tenure.entry e CROSS JOIN LATERAL tenure.shown_entry(e) s
        WHERE e.task = _family.task AND e.state = 'unfinished' AND e.kind = 'child' AND e.name > _after
        ORDER BY e.name LIMIT _limit + 1;
END $$;

-- The names of a kind that begin with a prefix. -> page(), row(; name, name)
CREATE FUNCTION tenure.list_names(_now bigint, _kind text, _prefix bytea, _after bytea, _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    -- no name has this byte
    upto bytea := _prefix || '\xff';
BEGIN
    RETURN NEXT tenure.reply('page');
    IF _kind = 'pools' THEN
        FOR i IN 0 .. _limit LOOP
            _after := (SELECT r.pool FROM tenure.resource r
                WHERE r.pool >= _prefix AND r.pool < upto AND r.pool > _after ORDER BY r.pool LIMIT 1);
            EXIT WHEN _after IS NULL;
            RETURN NEXT ROW('row', NULL, ARRAY[_after, _after])::tenure.answer;
        END LOOP;
    ELSIF _kind = 'holds' THEN
        RETURN QUERY SELECT CASE WHEN l.held > 0 THEN 'row' ELSE 'skip' END, NULL::bigint[], ARRAY[l.key, l.key]
            FROM tenure.line l
            WHERE l.key >= _prefix AND l.key < upto AND l.key > _after ORDER BY l.key LIMIT _limit + 1;
    ELSIF _kind = 'limiters' THEN
        RETURN QUERY
            SELECT CASE WHEN greatest(l.held_until, l.last_due + l.held) > (_now + 1) / 1e6::double precision
                THEN 'row' ELSE 'skip' END, NULL::bigint[], ARRAY[l.key, l.key]
            FROM tenure.limiter l
            WHERE l.key >= _prefix AND l.key < upto AND l.key > _after ORDER BY l.key LIMIT _limit + 1;
    ELSIF _kind = 'queues' THEN
        RETURN QUERY
            SELECT CASE WHEN r.put > 0 OR r.revision > 0 OR NOT tenure.is_idle(r) THEN 'row' ELSE 'skip' END, NULL::bigint[],
                ARRAY[q.name, q.name]
            FROM tenure.queue q CROSS JOIN LATERAL tenure.read_queue(_now, q.name) r
            WHERE q.name >= _prefix AND q.name < upto AND q.name > _after ORDER BY q.name LIMIT _limit + 1;
    ELSE
        RETURN QUERY SELECT 'row', NULL::bigint[], ARRAY[s.name, s.name] FROM tenure.session s
            WHERE s.name >= _prefix AND s.name < upto AND s.name > _after ORDER BY s.name LIMIT _limit + 1;
    END IF;
END $$;

-- What a session has. -> page(; process), row(1 if it is held, token, rank of the family, number; family, key, name)
CREATE FUNCTION tenure.list_items(_session tenure.session, _rank bigint, _number bigint, _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
BEGIN
    RETURN NEXT ROW('page', NULL, ARRAY[_session.process])::tenure.answer;
    RETURN QUERY SELECT 'row', ARRAY[b.is_held::int, b.token, b.rank, b.number], ARRAY[b.family::bytea, b.key, b.name]
        FROM tenure.belongings(_session.id, _rank, _number, _limit + 1) b WHERE b.family <> 'watches';
END $$;

-- The oldest snapshot, which keeps dead rows from being cleared away: whose it is, how many transactions have begun
-- since, and for how many seconds it has been there, -1 if the server does not know. All is NULL if there is none.
CREATE FUNCTION tenure.oldest_snapshot(OUT _who text, OUT _age bigint, OUT _seconds bigint) LANGUAGE plpgsql AS $$
BEGIN
    SELECT s.who, s.age, coalesce(extract(epoch FROM clock_timestamp() - s.since), -1)::bigint
    INTO _who, _age, _seconds FROM (
        SELECT greatest(age(a.backend_xmin), age(a.backend_xid)) AS age, a.xact_start AS since, concat(
            a.backend_type, ' ', a.pid, ' of ', coalesce(a.usename, 'the server'),
            ' (' || nullif(a.application_name, '') || ')', ', ' || a.state) AS who
        FROM pg_stat_activity a
        WHERE a.pid <> pg_backend_pid() AND (a.datname = current_database() OR a.backend_type = 'walsender')
        UNION ALL
        SELECT age(r.xmin), NULL, concat('replication slot ', r.slot_name) FROM pg_replication_slots r
        UNION ALL
        SELECT age(p.transaction), p.prepared, concat('prepared transaction ', p.gid, ' of ', p.owner)
        FROM pg_prepared_xacts p WHERE p.database = current_database()
    ) s WHERE s.age IS NOT NULL ORDER BY s.age DESC, s.since LIMIT 1;
END $$;

-- -> row(now, version of the schema, bytes of the database, dead rows, bytes of the tables with these, connections, most
-- connections, age of the oldest snapshot in transactions and in seconds; its owner or empty, name and value of each
-- setting that matters)
CREATE FUNCTION tenure.health(_now bigint) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    snapshot record := tenure.oldest_snapshot();
BEGIN
    RETURN ROW('row', ARRAY[
        _now,
        (SELECT m.version FROM tenure.meta m),
        pg_database_size(current_database()),
        (SELECT coalesce(sum(s.n_dead_tup), 0)::bigint FROM pg_stat_user_tables s
            WHERE s.relid IN ('tenure.task'::regclass, 'tenure.ended'::regclass)),
        pg_total_relation_size('tenure.task') + pg_total_relation_size('tenure.ended'),
        (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend'),
        current_setting('max_connections')::bigint,
        coalesce(snapshot._age, 0), coalesce(snapshot._seconds, 0)
    ], convert_to(coalesce(snapshot._who, ''), 'UTF8') || (SELECT array_agg(f.field ORDER BY s.name, f.n)
        FROM pg_settings s CROSS JOIN LATERAL (VALUES (1, s.name::bytea), (2, s.setting::bytea)) f (n, field)
        WHERE s.name IN ('server_version', 'fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum')
    ))::tenure.answer;
END $$;

-- A page of an index of the object `_key` of the kind `_of`, behind the place of which the numbers are `_after` and the name
-- is `_behind`. -> page, rows; unknown, gone, more
CREATE FUNCTION tenure.scan(
    _clock bigint, _cap bigint, _index text, _of text, _key bytea, _after bigint[], _behind bytea, _limit bigint,
    _only bytea, _watch bytea
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    session tenure.session;
    family tenure.family;
BEGIN
    IF _watch <> '' THEN
        PERFORM tenure.keep_session(_watch);
    END IF;
    IF _of IN ('', 'session') THEN
        now := tenure.time(_clock);
        now := CASE WHEN NOT tenure.is_due(now) THEN now END;
    ELSE
        now := tenure.enter_object(_clock, _of, _key);
    END IF;
    IF now IS NULL THEN
        RETURN NEXT tenure.reply('more');
        RETURN;
    END IF;
    SELECT * INTO session FROM tenure.session s WHERE s.name = CASE _of WHEN 'session' THEN _key ELSE _watch END
    ORDER BY s.page DESC LIMIT 1;
    IF NOT FOUND AND (_of = 'session' OR _watch <> '') THEN
        RETURN NEXT tenure.reply(CASE _of WHEN 'session' THEN 'unknown' ELSE 'gone' END);
        RETURN;
    END IF;
    IF _index IN ('entries', 'unfinished_children') THEN
        SELECT * INTO family FROM tenure.family f
        WHERE f.task = convert_from(_only, 'UTF8')::bigint AND f.queue = _key AND NOT f.over;
    END IF;
    IF _index = 'entries' THEN
        _limit := tenure.room_for_entries(family, _behind, _limit);
    END IF;
    RETURN NEXT ROW('index', ARRAY[_limit], ARRAY[_index::bytea])::tenure.answer;
    CASE
        WHEN _index = 'holders' THEN
            IF _watch <> '' THEN
                PERFORM tenure.subscribe_once('hold', _key, 0, session);
            END IF;
            RETURN QUERY SELECT * FROM tenure.list_holders(now, _key, _after, _limit);
        WHEN _index = 'resources' THEN
            RETURN QUERY SELECT * FROM tenure.list_resources(now, _key, _behind, _limit);
        WHEN _index = 'task' THEN
            RETURN QUERY SELECT * FROM tenure.one_task(
                now, _key, convert_from(_only, 'UTF8')::bigint, session);
        WHEN _index = 'keyed_task' THEN
            RETURN QUERY SELECT * FROM tenure.one_task(
                now, _key, (SELECT o._id FROM tenure.owner_of(now, _key, _only) o), session);
        WHEN _index = 'groups' THEN
            RETURN QUERY SELECT * FROM tenure.list_groups(now, _key, _after[1], _behind, _limit);
        WHEN _index = 'entries' THEN
            RETURN QUERY SELECT * FROM tenure.list_entries(family, _behind, _limit);
        WHEN _index = 'unfinished_children' THEN
            RETURN QUERY SELECT * FROM tenure.list_unfinished_children(family, _behind, _limit);
        WHEN _index = 'session' THEN
            RETURN QUERY SELECT * FROM tenure.list_items(
                session, coalesce(_after[1], 0), coalesce(_after[2], 0), _limit);
        WHEN _index IN ('limiter', 'health') THEN
            RETURN NEXT tenure.reply('page');
            RETURN NEXT CASE _index WHEN 'limiter' THEN tenure.limiter_status(now, _key) ELSE tenure.health(now) END;
        WHEN _of = '' THEN
            RETURN QUERY SELECT * FROM tenure.list_names(now, _index, _only, _behind, _limit);
        ELSE
            RETURN QUERY SELECT * FROM tenure.list_records(now, _key, _index, _after, _behind, _limit);
    END CASE;
END $$;
