-- The tables. Names and payloads are bytes, since texts have no NUL here; times are microseconds since 1970.
--
-- All rows of one object (a key, a pool, a queue) are changed under the advisory lock of that object only; so there is
-- at most one transaction at a time that changes them. `made` numbers are in the order of making, over all tables.
-- `check_at` is when to look whether a row is still needed, NULL if that is found out otherwise. It is indexed, and
-- changes seldom, unlike the time until which the row is kept.
--
-- Marks. While a transaction is held open, for a backup or a report, no dead row goes, nor its entries in indexes. A
-- statement that begins at the dead end of an index passes them all: a queue that has done a million tasks since then
-- would pass a million entries with each take, which takes 60 ms. So no statement that runs often begins there:
--
-- * What changes under the lock of a queue begins at a mark in the row of the queue: `fronts` and the columns named
--   `first_...`. A mark may be too low, which costs time. Above what is there it would hide that: a task would never be
--   taken. So what comes lowers the mark, and only the statement that has read up to a place raises it to that place.
-- * What changes under no such lock begins at a sequence, which has no versions: `last_due`, `last_forgotten`. Both
--   stay 0.1 s behind, for transactions that are under way, and every ten seconds one call looks from the beginning.
-- * A row that changes all the time has a `page` in its key, and counts its `changes`: with each 32nd it gets the next
--   page, a session with each heartbeat, a group with each turn. A look-up of the last page meets few versions. The
--   lock of an object sees to it that a name has one row, whatever its page is.
--
-- `test_postgres_held.py` counts the entries that are read, and a check behind each test looks for rows below a mark.

CREATE TYPE tenure.answer AS (word text, n bigint[], b bytea[]);

-- What a session has, or waits for, in one family: `rank` is that of the family, `number` counts within it.
CREATE TYPE tenure.belonging AS (
    rank int, number bigint, family text, key bytea, name bytea, is_held boolean, token bigint
);

-- The requests of a `put`: without a wait it is refused, and `counts` says how many tasks each has. A cursor and its
-- value are NULL for none; `expected` is NULL if no cursor has to have a value before.
CREATE TYPE tenure.put_requests AS (
    producers bytea[], waits bigint[], cursors bytea[], cursor_values bytea[], counts bigint[], expected bytea[]
);

-- The tasks of all these requests, one behind the other. An array but for `payloads` and `priorities` is NULL when no
-- task has such a thing, and `about`, see keys.sql, when no key does more than to refuse. An expiry or a deadline below
-- zero is none.
CREATE TYPE tenure.new_tasks AS (
    payloads bytea[], priorities bigint[], delays bigint[], keys bytea[], expires bigint[], metas bytea[],
    groups bytea[], about text[], deadlines bigint[]
);

-- Settlements: a ttl below zero is for good, and `failures` is NULL when none has one.
CREATE TYPE tenure.settlements AS (
    ids bigint[], tokens bigint[], verdicts text[], results bytea[], delays bigint[], ttls bigint[], failures bytea[]
);

CREATE TABLE tenure.meta (version bigint NOT NULL);

-- Connections through a pooler that were given up.
CREATE TABLE tenure.former_link (name bytea PRIMARY KEY, ended_at bigint NOT NULL);

CREATE SEQUENCE tenure.last_token MINVALUE 0 START 0;
CREATE SEQUENCE tenure.last_made;
CREATE SEQUENCE tenure.last_hint;
CREATE SEQUENCE tenure.last_use;
CREATE SEQUENCE tenure.last_ending;
-- Times before which nothing is due, and no record has to be forgotten, but for what a slow transaction has committed
-- since; and the time of the last look for that.
CREATE SEQUENCE tenure.last_due MINVALUE 0 START 0;
CREATE SEQUENCE tenure.last_forgotten MINVALUE 0 START 0;
CREATE SEQUENCE tenure.last_rescue MINVALUE 0 START 0;
-- `last_timeout` has no value until a family waits for a time: until then, no operation looks for such a time.
CREATE SEQUENCE tenure.last_timeout;

-- Sessions: a heartbeat changes one row.
CREATE TABLE tenure.session (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name bytea NOT NULL,
    process bytea NOT NULL,
    ttl bigint NOT NULL,
    expires bigint NOT NULL,
    page bigint NOT NULL DEFAULT 0,
    resting boolean NOT NULL DEFAULT false,
    UNIQUE (name, page)
) WITH (fillfactor = 50);
CREATE INDEX session_expires ON tenure.session (expires, name);
CREATE INDEX session_awake ON tenure.session (expires) WHERE NOT resting;

-- The last answer to the numbered operations of a session on an object.
CREATE TABLE tenure.cached_reply (
    session bigint NOT NULL,
    kind text NOT NULL,
    name bytea NOT NULL,
    n bigint NOT NULL,
    answer tenure.answer[] NOT NULL,
    keep_until bigint NOT NULL,
    check_at bigint NOT NULL,
    page bigint NOT NULL DEFAULT 0,
    changes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (session, kind, name, page)
) WITH (fillfactor = 70);
CREATE INDEX cached_reply_check ON tenure.cached_reply (check_at);

CREATE TABLE tenure.watch (
    made bigint NOT NULL DEFAULT nextval('tenure.last_made'),
    kind text NOT NULL,
    name bytea NOT NULL,
    task bigint NOT NULL,
    session bigint NOT NULL,
    process bytea NOT NULL,
    PRIMARY KEY (kind, name, task, session)
);
CREATE INDEX watch_session ON tenure.watch (session, made);

-- The state of a key. A row without holders and waiters that is not `fixed` has a capacity of 0, and stays until
-- `check_at`. No waiter has an ordinal below `first_waiter`. `meeting` is the token of the meeting for which arrivals wait, or
-- which they broke; 0 if there is none.
CREATE TABLE tenure.line (
    key bytea NOT NULL,
    capacity bigint NOT NULL,
    fixed boolean NOT NULL,
    used bigint NOT NULL,
    ordinal bigint NOT NULL,
    held bigint NOT NULL,
    waiting bigint NOT NULL,
    first_waiter bigint NOT NULL,
    meeting bigint NOT NULL DEFAULT 0,
    check_at bigint,
    page bigint NOT NULL DEFAULT 0,
    changes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (key, page)
) WITH (fillfactor = 50);
CREATE INDEX line_check ON tenure.line (check_at) WHERE check_at IS NOT NULL;

-- Work to be done from a moment on. Without `what`: serve a line whose serving was cut short (`due` and `id` are 0,
-- the name is the key), or delete a dead letter (the name is the queue). Otherwise: "told", a child of the task has
-- ended (`due` is 0; the name is the queue, the entry is the child's, with its state and value); "begin" or "drop" the
-- held task; "sweep", go on with the sweeps of families (`id` is -1); "time out", the task waits for its entry until
-- then.
CREATE TABLE tenure.todo (
    due bigint NOT NULL, id bigint NOT NULL, name bytea NOT NULL, what text, entry bytea, state text, value bytea
);
CREATE INDEX todo_due ON tenure.todo (due, id);
CREATE INDEX todo_timeout ON tenure.todo (due, name, id) WHERE what IN ('time out', 'sweep');

CREATE TABLE tenure.hold (
    key bytea NOT NULL,
    holder bytea NOT NULL,
    session bigint NOT NULL,
    process bytea NOT NULL,
    weight bigint NOT NULL,
    value bytea NOT NULL,
    ordinal bigint NOT NULL,
    since bigint NOT NULL,
    token bigint NOT NULL,
    made bigint NOT NULL DEFAULT nextval('tenure.last_made'),
    PRIMARY KEY (key, holder)
);
CREATE INDEX hold_waits ON tenure.hold (key, ordinal) WHERE token = 0;
CREATE INDEX hold_holds ON tenure.hold (key, token) WHERE token > 0;
CREATE INDEX hold_session ON tenure.hold (session, made);

-- How many came to the line of a pool.
CREATE TABLE tenure.pool (name bytea PRIMARY KEY, ordinal bigint NOT NULL);

-- A resource, of which some slots are claimed, the last one with that token by that process, until that claim ends.
-- Fields: see `fields` in _values.py.
CREATE TABLE tenure.resource (
    pool bytea NOT NULL,
    name bytea NOT NULL,
    metadata bytea[] NOT NULL,
    preference bigint NOT NULL,
    used bigint NOT NULL DEFAULT 0,
    rests boolean NOT NULL DEFAULT false,
    rest_until bigint NOT NULL DEFAULT 0,
    slots bigint NOT NULL,
    claimed bigint NOT NULL DEFAULT 0,
    process bytea,
    token bigint NOT NULL DEFAULT 0,
    retired bytea,
    removed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (pool, name)
) WITH (fillfactor = 70);
CREATE INDEX resource_free ON tenure.resource (pool, preference DESC, used, name)
    WHERE claimed < slots AND NOT removed AND NOT rests AND retired IS NULL;
CREATE INDEX resource_rests ON tenure.resource (rest_until, pool, name) WHERE rests;
CREATE INDEX resource_next ON tenure.resource (pool, rest_until) WHERE rests;

-- A claimer: it waits while it has no resource, in the order of `number` and `ordinal`.
CREATE TABLE tenure.claim (
    pool bytea NOT NULL,
    holder bytea NOT NULL,
    session bigint NOT NULL,
    process bytea NOT NULL,
    wanted bytea[] NOT NULL,
    quarantine bigint NOT NULL,
    ordinal bigint NOT NULL,
    resource bytea,
    token bigint NOT NULL DEFAULT 0,
    group_name bytea NOT NULL DEFAULT '',
    number bigint NOT NULL DEFAULT 0,
    made bigint NOT NULL DEFAULT nextval('tenure.last_made'),
    PRIMARY KEY (pool, holder)
);
CREATE INDEX claim_waits ON tenure.claim (pool, number, ordinal) WHERE resource IS NULL;
CREATE INDEX claim_group ON tenure.claim (pool, group_name, number) WHERE resource IS NULL;
CREATE INDEX claim_session ON tenure.claim (session, made);

-- The state of a limiter, in seconds: it says something `until` then. The time of `last_due` and `ends` is that of the
-- limiter's clock, which stands still while it is held off. Corrections have moved the end of the last spending in
-- a limit by `moved`. If that spending has to wait, `sessions` made it (else empty): it is due at `dues`, `sizes` long.
CREATE TABLE tenure.limiter (
    key bytea NOT NULL,
    until double precision NOT NULL,
    held_until double precision NOT NULL,
    held double precision NOT NULL,
    last_due double precision NOT NULL,
    names bytea[] NOT NULL,
    ends double precision[] NOT NULL,
    rates double precision[] NOT NULL,
    moved double precision[] NOT NULL,
    sessions bytea[] NOT NULL,
    dues double precision[] NOT NULL,
    sizes double precision[] NOT NULL,
    check_at bigint NOT NULL,
    page bigint NOT NULL,
    changes bigint NOT NULL,
    PRIMARY KEY (key, page)
) WITH (fillfactor = 50);
CREATE INDEX limiter_check ON tenure.limiter (check_at);

-- A process that waits, and until when, on the limiter's clock.
CREATE TABLE tenure.limiter_waiter (
    key bytea NOT NULL,
    process bytea NOT NULL,
    due double precision NOT NULL,
    PRIMARY KEY (key, process)
) WITH (fillfactor = 50);
CREATE INDEX limiter_waiter_due ON tenure.limiter_waiter (key, due);

-- A queue, in five parts. They are no composites, though a part is one idea: PL/pgSQL reads a flat column of a row in
-- 0.1 microseconds, and a field of a composite in 0.6.
CREATE TABLE tenure.queue (
    name bytea NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    -- `awaited`: a client may watch the end of a task. `followed`: a client may watch its changes.
    awaited boolean NOT NULL DEFAULT false,
    followed boolean NOT NULL DEFAULT false,
    -- The row is needed until `keep_until`, and the sweep looks at it at `check_at`.
    keep_until bigint NOT NULL DEFAULT 0,
    check_at bigint,
    at bigint, -- never stored: the time of the operation that has read the row

    -- Settings: what the functions need of `setting`. A rate is the microseconds between two starts, and the burst.
    max_size bigint NOT NULL DEFAULT 10000,
    aging bigint,
    max_deliveries bigint NOT NULL DEFAULT 20,
    keep_payloads boolean NOT NULL DEFAULT false,
    dead_ttl bigint DEFAULT 15552000000000,
    per_group bigint NOT NULL DEFAULT 0,
    group_size bigint NOT NULL DEFAULT 0,
    keep_order boolean NOT NULL DEFAULT true,
    rate double precision[],
    group_rate double precision[],
    revision bigint NOT NULL DEFAULT 0,

    -- Counts. `waiting` and `delayed` are as the tasks stand in their orders, `live` are all unfinished; `suspended`,
    -- `ending` and `held` ones are in no order. `lasting` are records that are kept for good.
    live bigint NOT NULL DEFAULT 0,
    waiting bigint NOT NULL DEFAULT 0,
    takeable bigint NOT NULL DEFAULT 0,
    delayed bigint NOT NULL DEFAULT 0,
    suspended bigint NOT NULL DEFAULT 0,
    ending bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0,
    put bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    dead bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    discarded bigint NOT NULL DEFAULT 0,
    purged bigint NOT NULL DEFAULT 0,
    lasting bigint NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0,
    producers bigint NOT NULL DEFAULT 0,
    takers bigint NOT NULL DEFAULT 0,
    ordinal bigint NOT NULL DEFAULT 0,

    -- Groups. Unless it `has_groups`, this part is as in a new queue, but for `takeable`: the waiting tasks that groups
    -- let be taken now. `named` are the rows of task_group but for that of tasks without a group, `groups` those of
    -- them that have an unfinished task; the rows have one `period` until none is needed. While groups take turns, the
    -- turns have a `round` above 0 and their `virtual_time`; else both are 0, and idle groups are the only rows.
    -- `weights` are the rows of turn.
    has_groups boolean NOT NULL DEFAULT false,
    period bigint NOT NULL DEFAULT nextval('tenure.last_made'),
    named bigint NOT NULL DEFAULT 0,
    groups bigint NOT NULL DEFAULT 0,
    round bigint NOT NULL DEFAULT 0,
    virtual_time double precision NOT NULL DEFAULT 0,
    weights bigint NOT NULL DEFAULT 0,

    -- Pace. The next task of the queue may start at `starts_at`, by the rate alone at `paced_at` while the queue is
    -- held off. The queue is `closed_until` then, by the last check (NULL: it is open). No group is held off after
    -- `held_until`.
    starts_at double precision,
    paced_at double precision,
    closed_until double precision,
    held_until double precision,

    -- Marks, see the head of this file. `fronts` are a priority, a time and an id for each priority of which a task
    -- without a group can be taken, the highest first: no such task is before that time and id. With more priorities
    -- than `with_front` keeps, they are NULL. While groups take turns, each row of task_group has such fronts instead.
    fronts bigint[] DEFAULT '{}',
    first_due bigint NOT NULL DEFAULT 0, -- No delayed task is due earlier.
    first_taker bigint NOT NULL DEFAULT 0, -- No idle taker was made earlier.
    first_producer bigint NOT NULL DEFAULT 0, -- No producer that waits for room has a lower ordinal.
    first_awaited bigint NOT NULL DEFAULT 0, -- No client watches the end of a task with a lower id.
    first_followed bigint NOT NULL DEFAULT 0, -- No client watches the changes of a task with a lower id.
    first_grouped bigint NOT NULL DEFAULT 0, -- No task of a group that can be taken was ready earlier.
    first_kept bigint NOT NULL DEFAULT 0, -- No key in kept_key is over earlier.
    first_closed double precision, -- Time opens no group earlier (NULL: never).
    first_idle double precision, -- No group stops being idle earlier (NULL: never).
    page bigint NOT NULL DEFAULT 0,
    changes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (name, page)
) WITH (fillfactor = 30);
CREATE INDEX queue_check ON tenure.queue (check_at) WHERE check_at IS NOT NULL;

-- A field of the record of a queue's settings, as JSON; the row of the queue has what the functions need of them,
-- and the `revision`, 0 without a record: then these rows are those of a former one.
CREATE TABLE tenure.setting (
    queue bytea NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    since bigint NOT NULL,
    set_by bytea NOT NULL,
    PRIMARY KEY (queue, name)
);

CREATE TABLE tenure.cursor (
    queue bytea NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    page bigint NOT NULL DEFAULT 0,
    changes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, name, page)
);

-- What a turn of a group costs, for those whose weight is not 1.
CREATE TABLE tenure.turn (
    queue bytea NOT NULL,
    name bytea NOT NULL,
    cost double precision NOT NULL,
    PRIMARY KEY (queue, name)
);

-- A group of tasks; the empty name is that of the tasks without a group. `pinned` is the task that goes before the
-- others because it was tried; `reserved` slots belong to producers, and `producers` wait for room in the group. `cost`
-- is that of a turn. The next task may start at `starts_at`, by the rate alone at `paced_at` while the group is held
-- off. The `fronts` are as in the queue.
--
-- A group stands in one line at most, at its `rank`. While tasks are `takeable`, that is the round of the queue, and
-- the rank is the tag. In line -1 are those that time alone keeps closed, until then. In line -2 are idle ones, of
-- which only `starts_at` is left, until that has no effect. Line 0 is none: nothing waits, or something has to happen
-- first.
--
-- A turn changes the rank, which adds an entry to each index, and so the `page` too; so does one of many changes
-- without a turn. The row may stay when it has no effect, until the period ends.
CREATE TABLE tenure.task_group (
    queue bytea NOT NULL,
    period bigint NOT NULL,
    name bytea NOT NULL,
    live bigint NOT NULL,
    waiting bigint NOT NULL,
    leased bigint NOT NULL,
    takeable bigint NOT NULL DEFAULT 0,
    pinned bigint NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0,
    producers bigint NOT NULL DEFAULT 0,
    cost double precision NOT NULL DEFAULT 1,
    line bigint NOT NULL DEFAULT 0,
    rank double precision,
    starts_at double precision,
    paced_at double precision,
    fronts bigint[] DEFAULT '{}',
    page bigint NOT NULL DEFAULT nextval('tenure.last_made'),
    changes bigint NOT NULL DEFAULT 0,
    -- with room for the entry that a turn adds
    PRIMARY KEY (queue, period, name, page) WITH (fillfactor = 50)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX task_group_line ON tenure.task_group (queue, line, rank, name) WHERE rank IS NOT NULL;

-- A producer that waits to put `count` tasks, or has that many slots reserved. With `for_group` it waits for room in
-- its group, otherwise for room in the queue.
CREATE TABLE tenure.producer (
    queue bytea NOT NULL,
    name bytea NOT NULL,
    session bigint NOT NULL,
    process bytea NOT NULL,
    count bigint NOT NULL,
    ordinal bigint NOT NULL,
    reserved boolean NOT NULL DEFAULT false,
    group_name bytea NOT NULL DEFAULT '',
    for_group boolean NOT NULL DEFAULT false,
    made bigint NOT NULL DEFAULT nextval('tenure.last_made'),
    PRIMARY KEY (queue, name)
);
CREATE INDEX producer_waits ON tenure.producer (queue, ordinal) WHERE NOT reserved AND NOT for_group;
CREATE INDEX producer_for_group ON tenure.producer (queue, group_name, ordinal) WHERE for_group;
CREATE INDEX producer_session ON tenure.producer (session, made);

CREATE TABLE tenure.taker (
    queue bytea NOT NULL,
    session bigint NOT NULL,
    process bytea NOT NULL,
    want bigint NOT NULL,
    made bigint NOT NULL DEFAULT nextval('tenure.last_made'),
    PRIMARY KEY (queue, session, made)
);
CREATE INDEX taker_order ON tenure.taker (queue, made);
CREATE INDEX taker_session ON tenure.taker (session, made);

-- An unfinished task: leased while it has a session. `delayed` is as it stands in the orders. An empty failure or meta
-- is NULL; the name of the group is empty if it has none. `stop` is 0 if it is superseded; `first_put` is there if it
-- has a key. A task that is in no order has the session 0, which is nobody's, and the token 0: it is suspended, or
-- `ending`; a held release has the session -1. A task with `kin` has a row in `family`, and nothing of this is read for a task without. `expires` is when
-- the task is looked at: when it expires, if it has not begun then, or when its `deadline` passes.
CREATE TABLE tenure.task (
    id bigint NOT NULL,
    queue bytea NOT NULL,
    priority bigint NOT NULL,
    ready_at bigint NOT NULL,
    delayed boolean NOT NULL DEFAULT false,
    attempts bigint NOT NULL DEFAULT 0,
    deliveries bigint NOT NULL DEFAULT 0,
    session bigint,
    process bytea,
    token bigint NOT NULL DEFAULT 0,
    stop bigint,
    stop_ttl bigint,
    max_deliveries bigint NOT NULL DEFAULT 0,
    keep boolean NOT NULL DEFAULT false,
    dead_ttl bigint,
    key bytea,
    expires bigint,
    progress bytea NOT NULL DEFAULT '',
    payload bytea NOT NULL,
    failure bytea,
    meta bytea,
    group_name bytea NOT NULL DEFAULT '',
    first_put bigint,
    kin boolean NOT NULL DEFAULT false,
    ending boolean NOT NULL DEFAULT false,
    deadline bigint,
    -- with room for the entry that leasing a task adds
    PRIMARY KEY (queue, id) WITH (fillfactor = 50)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX task_priority ON tenure.task (queue, group_name, priority DESC, ready_at, id)
    WHERE session IS NULL AND NOT delayed;
CREATE INDEX task_age ON tenure.task (queue, group_name, ready_at, id) WHERE session IS NULL AND NOT delayed;
-- what is due next, and the oldest of all groups: one index more would cost tasks without a group too
CREATE INDEX task_due ON tenure.task (queue, delayed, ready_at, id)
    WHERE session IS NULL AND (delayed OR group_name <> '');
CREATE INDEX task_lease ON tenure.task (session, token) WHERE session IS NOT NULL;
CREATE INDEX task_leased ON tenure.task (queue, token) WHERE session IS NOT NULL;
CREATE INDEX task_stop ON tenure.task (session, stop) WHERE stop IS NOT NULL;
CREATE UNIQUE INDEX task_key ON tenure.task (queue, key) WHERE key IS NOT NULL;
CREATE INDEX task_expiry ON tenure.task (expires, id) WHERE expires IS NOT NULL;
CREATE INDEX task_apart ON tenure.task (queue, ending, id) WHERE session = 0;

-- The family of a task that is a child or has entries, for as long as it is unfinished or a dead letter: its place in
-- the tree, and what it waits for. It changes under the lock of the queue of the task.
--
-- The columns are as the fields of `Family` in rules/_families.py. A wait for the entry `awaited` lasts `until` then (NULL:
-- for good); `verdict` is "retry", or the state in which the task ends.
CREATE TABLE tenure.family (
    task bigint PRIMARY KEY,
    queue bytea NOT NULL,
    parent_queue bytea NOT NULL DEFAULT '',
    parent bigint NOT NULL DEFAULT 0,
    name bytea NOT NULL DEFAULT '',
    depth bigint NOT NULL DEFAULT 0,
    total bigint NOT NULL DEFAULT 0,
    unfinished bigint NOT NULL DEFAULT 0,
    ends bigint NOT NULL DEFAULT 0,
    tries bigint NOT NULL DEFAULT 0,
    born bigint NOT NULL DEFAULT 0,
    awaited bytea NOT NULL DEFAULT '',
    until bigint,
    prefix bytea NOT NULL DEFAULT '',
    rest bigint NOT NULL DEFAULT 0,
    verdict text,
    result bytea,
    ttl bigint,
    swept bytea NOT NULL DEFAULT '',
    swept_to bytea NOT NULL DEFAULT '',
    sweeps boolean NOT NULL DEFAULT false,
    over boolean NOT NULL DEFAULT false,
    held bigint NOT NULL DEFAULT 0,
    life bigint NOT NULL DEFAULT 1,
    named boolean NOT NULL DEFAULT false,
    ran boolean NOT NULL DEFAULT false,
    dropped bigint NOT NULL DEFAULT 0,
    beside boolean NOT NULL DEFAULT false,
    release boolean NOT NULL DEFAULT false,
    told boolean NOT NULL DEFAULT false,
    seconds bigint
) WITH (fillfactor = 50);
CREATE INDEX family_sweeps ON tenure.family (queue, task) WHERE sweeps;
CREATE INDEX family_over ON tenure.family (task) WHERE over;

-- An entry of a task, of the try in which it was written, or the child ended. `child` is the id of a child or a
-- release, NULL for a value or a signal; `ended` is the number of its end among the ends of the task's children, 0
-- before it. `life` to `token` are as in `Entry` in rules/_families.py.
CREATE TABLE tenure.entry (
    task bigint NOT NULL,
    name bytea NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    value bytea NOT NULL DEFAULT '',
    queue bytea,
    child bigint,
    swept boolean NOT NULL DEFAULT false,
    ended bigint NOT NULL DEFAULT 0,
    tries bigint NOT NULL,
    life bigint NOT NULL DEFAULT 0,
    unless_done boolean NOT NULL DEFAULT false,
    together boolean NOT NULL DEFAULT false,
    token bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (task, name)
) WITH (fillfactor = 70);
CREATE INDEX entry_unfinished ON tenure.entry (task, name) WHERE state = 'unfinished' AND kind = 'child';
CREATE INDEX entry_failed ON tenure.entry (task, tries, name) WHERE kind = 'child' AND state NOT IN ('unfinished', 'done');
CREATE INDEX entry_held ON tenure.entry (task, child) WHERE state = 'held';

-- A key with a ttl, whose task may have ended.
CREATE TABLE tenure.kept_key (
    queue bytea NOT NULL,
    key bytea NOT NULL,
    task bigint NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX kept_key_until ON tenure.kept_key (queue, until);

-- The record of a task that has ended; seq is the rank of the ending. The token is 0 without a lease. An empty
-- progress, failure or meta is NULL. The family of a dead letter with `kin` is kept.
CREATE TABLE tenure.ended (
    id bigint PRIMARY KEY,
    queue bytea NOT NULL,
    state text NOT NULL,
    seq bigint NOT NULL,
    priority bigint NOT NULL,
    attempts bigint NOT NULL,
    deliveries bigint NOT NULL,
    ended_at bigint NOT NULL,
    token bigint NOT NULL DEFAULT 0,
    expires bigint,
    key bytea,
    result bytea NOT NULL,
    payload bytea NOT NULL,
    progress bytea,
    failure bytea,
    meta bytea,
    group_name bytea NOT NULL DEFAULT '',
    kin boolean NOT NULL DEFAULT false
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ended_state ON tenure.ended (queue, state, seq);
CREATE INDEX ended_expiry ON tenure.ended (expires) WHERE expires IS NOT NULL AND state <> 'dead';
