-- meta: What the whole file shares: the boot that sessions belong to, and the last number given of each kind.
CREATE TABLE meta (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  boot TEXT NOT NULL,
  last_token INTEGER NOT NULL,
  last_ending INTEGER NOT NULL,
  last_rank INTEGER NOT NULL
)

-- session: The life sign of a process; ttl and expires in microseconds, expires on the clock of the boot.
CREATE TABLE session (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  process TEXT NOT NULL,
  ttl INTEGER NOT NULL,
  expires INTEGER NOT NULL
)

-- session_expiry: In the order in which sessions end.
CREATE INDEX session_expiry ON session (expires, name)

-- watch: One-shot requests to be hinted: of a hold's key, of the end or the next change of a task (by its id), of a
-- queue that drains.
CREATE TABLE watch (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  task INTEGER NOT NULL,
  session INTEGER NOT NULL,
  UNIQUE (kind, key, task, session)
)

-- watch_topic: The watches of a topic, in the order of registration.
CREATE INDEX watch_topic ON watch (kind, task, key)

-- watch_session: What a session watches.
CREATE INDEX watch_session ON watch (session)

-- hint: Messages for processes of other engines; each process reads on from the last id that it has read.
CREATE TABLE hint (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  process TEXT NOT NULL,
  at INTEGER NOT NULL,
  key TEXT NOT NULL,
  name TEXT NOT NULL,
  news TEXT NOT NULL
)

-- hint_process: The messages for one process.
CREATE INDEX hint_process ON hint (process)

-- queue: The counters of a queue. live are unfinished; waiting and delayed as they stand in the order of tasks; lasting
-- are records that are kept for good; the settings have this revision, 0 without; has_groups: it has a row of `grouping`. An id is never used again: records may outlive a queue for a while.
CREATE TABLE queue (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  paused INTEGER NOT NULL DEFAULT 0,
  revision INTEGER NOT NULL DEFAULT 0,
  live INTEGER NOT NULL DEFAULT 0,
  waiting INTEGER NOT NULL DEFAULT 0,
  delayed INTEGER NOT NULL DEFAULT 0,
  put INTEGER NOT NULL DEFAULT 0,
  done INTEGER NOT NULL DEFAULT 0,
  dead INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0,
  expired INTEGER NOT NULL DEFAULT 0,
  discarded INTEGER NOT NULL DEFAULT 0,
  purged INTEGER NOT NULL DEFAULT 0,
  reserved INTEGER NOT NULL DEFAULT 0,
  producers INTEGER NOT NULL DEFAULT 0,
  takers INTEGER NOT NULL DEFAULT 0,
  stops INTEGER NOT NULL DEFAULT 0,
  ordinal INTEGER NOT NULL DEFAULT 0,
  lasting INTEGER NOT NULL DEFAULT 0,
  suspended INTEGER NOT NULL DEFAULT 0,
  ending INTEGER NOT NULL DEFAULT 0,
  held INTEGER NOT NULL DEFAULT 0,
  cursors INTEGER NOT NULL DEFAULT 0,
  keep_until INTEGER NOT NULL DEFAULT 0,
  look_at INTEGER,
  has_groups INTEGER NOT NULL DEFAULT 0
)

-- queue_look: Queues that may be forgotten from then on.
CREATE INDEX queue_look ON queue (look_at) WHERE look_at IS NOT NULL

-- grouping: What a queue has for all its groups together, while it has a group or settings: how many are named, how
-- many of these have an unfinished task, how many tasks can be taken, how many producers wait in the lines of groups; the
-- virtual time; the settings, with the weights as JSON, by name in hexadecimal digits. starts_at to closed_until are as in
-- task_group, for the queue; how many groups are closed until a time, and how many are idle.
CREATE TABLE grouping (
  queue INTEGER PRIMARY KEY,
  named INTEGER NOT NULL,
  unfinished INTEGER NOT NULL,
  takeable INTEGER NOT NULL,
  producers INTEGER NOT NULL,
  virtual_time REAL NOT NULL,
  per_group INTEGER NOT NULL,
  max_size INTEGER NOT NULL,
  hold INTEGER NOT NULL,
  every REAL NOT NULL,
  burst REAL NOT NULL,
  group_every REAL NOT NULL,
  group_burst REAL NOT NULL,
  starts_at REAL NOT NULL,
  paced_at REAL,
  closed_until REAL NOT NULL,
  closed INTEGER NOT NULL,
  idle INTEGER NOT NULL,
  weights TEXT NOT NULL
)

-- task_group: A group of a queue; the name x'' is that of the tasks without a group while there are others, of which only
-- waiting, takeable and tag count. The tag counts while a task can be taken. pinned_task goes before
-- the others because it was tried; the group rests while that task is delayed. reserved are slots, and producers wait
-- in the line of the group. The next task may start from starts_at, by the rate alone from paced_at while the group is held
-- off. The tasks that wait cannot be taken before closed_until: -9e999 if some can be or none wait, 9e999 if something has to
-- happen first. A group of which only starts_at is left is idle.
CREATE TABLE task_group (
  queue INTEGER NOT NULL,
  name BLOB NOT NULL,
  unfinished INTEGER NOT NULL,
  waiting INTEGER NOT NULL,
  leased INTEGER NOT NULL,
  takeable INTEGER NOT NULL,
  pinned_task INTEGER NOT NULL,
  rests INTEGER NOT NULL,
  reserved INTEGER NOT NULL,
  producers INTEGER NOT NULL,
  starts_at REAL NOT NULL,
  paced_at REAL,
  closed_until REAL NOT NULL,
  tag REAL NOT NULL,
  PRIMARY KEY (queue, name)
) WITHOUT ROWID

-- task_group_turn: The groups that can be taken from, in the order of their turns.
CREATE INDEX task_group_turn ON task_group (queue, tag, name) WHERE takeable > 0

-- task_group_closed: The groups that are closed until a time, in the order of these times.
CREATE INDEX task_group_closed ON task_group (queue, closed_until, name) WHERE closed_until > -9e999 AND closed_until < 9e999

-- task_group_idle: The groups without tasks, by the time from which the next one may start.
CREATE INDEX task_group_idle ON task_group (queue, starts_at) WHERE unfinished = 0

-- task: An unfinished task; place 0: waiting, 1: delayed, 2: leased, 3: suspended, 4: ending, 5: held; kin: it has a family. stop is the rank of the request to cancel it, 0 for one
-- that is superseded; first_put is there if it has a key. Moments are in microseconds of the wall clock, ttls in seconds. A number
-- beyond 64 bits would come out of JSON as a float. expires is when a task is looked at: when it expires, unless it has begun
-- by then, or when its deadline passes.
CREATE TABLE task (
  id INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  place INTEGER NOT NULL,
  priority INTEGER NOT NULL CHECK (typeof(priority) = 'integer'),
  ready_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  deliveries INTEGER NOT NULL DEFAULT 0,
  session INTEGER,
  token INTEGER NOT NULL DEFAULT 0,
  stop INTEGER,
  stop_ttl REAL,
  kin INTEGER NOT NULL DEFAULT 0,
  max_deliveries INTEGER NOT NULL DEFAULT 0,
  keep INTEGER NOT NULL DEFAULT 0,
  dead_ttl REAL,
  group_name BLOB NOT NULL DEFAULT x'',
  key BLOB,
  expires INTEGER,
  progress BLOB NOT NULL DEFAULT x'',
  failure BLOB NOT NULL DEFAULT x'',
  meta BLOB NOT NULL DEFAULT x'',
  payload BLOB NOT NULL,
  first_put INTEGER,
  deadline INTEGER
)

-- task_priority: Those that wait, by group and in the order of priority.
CREATE INDEX task_priority ON task (queue, group_name, priority DESC, ready_at) WHERE place = 0

-- task_age: Waiting tasks, by group and in the order of age. In a named group, task_priority has those of priority 0 in
-- this order.
CREATE INDEX task_age ON task (queue, group_name, ready_at) WHERE place = 0 AND (group_name = x'' OR priority <> 0)

-- task_age_in_groups: The waiting tasks of all named groups, in the order of age.
CREATE INDEX task_age_in_groups ON task (queue, ready_at) WHERE place = 0 AND group_name > x''

-- task_due: The delayed ones, in the order in which they become due.
CREATE INDEX task_due ON task (queue, ready_at) WHERE place = 1

-- task_lease: What a session has taken, in the order of taking.
CREATE INDEX task_lease ON task (session, token) WHERE place = 2

-- task_leased: The leased tasks of a queue, in the order of taking.
CREATE INDEX task_leased ON task (queue, token) WHERE place = 2

-- task_kin: Those with a family, by place and id: all that are suspended or ending are among them.
CREATE INDEX task_kin ON task (queue, place, id) WHERE kin = 1

-- task_stop: Leased tasks whose cancellation was requested, in the order of the requests.
CREATE INDEX task_stop ON task (session, queue, stop) WHERE stop IS NOT NULL

-- task_key: One unfinished task for each key of a queue.
CREATE UNIQUE INDEX task_key ON task (queue, key) WHERE key IS NOT NULL

-- task_expiry: Those that are looked at when they expire or are late, in the order in which they are.
CREATE INDEX task_expiry ON task (expires) WHERE expires IS NOT NULL

-- kept_key: The keys with a ttl, whose tasks may have ended.
CREATE TABLE kept_key (
  queue INTEGER NOT NULL,
  key BLOB NOT NULL,
  task INTEGER NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (queue, key)
) WITHOUT ROWID

-- kept_key_until: The kept keys of a queue, the first to be forgotten first.
CREATE INDEX kept_key_until ON kept_key (queue, until)

-- ended: The record of a task that has ended; seq is the rank of the ending; token: 0 without a lease; kin: its family is
-- kept with it if it is dead.
CREATE TABLE ended (
  id INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  state TEXT NOT NULL,
  seq INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  deliveries INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  token INTEGER NOT NULL DEFAULT 0,
  expires INTEGER,
  kin INTEGER NOT NULL DEFAULT 0,
  group_name BLOB NOT NULL DEFAULT x'',
  key BLOB,
  progress BLOB NOT NULL DEFAULT x'',
  failure BLOB NOT NULL DEFAULT x'',
  meta BLOB NOT NULL DEFAULT x'',
  result BLOB NOT NULL,
  payload BLOB NOT NULL
)

-- ended_state: The endings of a queue, by state and in their order.
CREATE INDEX ended_state ON ended (queue, state, seq)

-- ended_expiry: Records that are to be forgotten, the first ones first.
CREATE INDEX ended_expiry ON ended (expires) WHERE expires IS NOT NULL AND state <> 'dead'

-- ended_letters: Dead letters that are to be deleted, the first ones first.
CREATE INDEX ended_letters ON ended (expires) WHERE expires IS NOT NULL AND state = 'dead'
