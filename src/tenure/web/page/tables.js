// What is there now, as tables.
const MAY_ACT = document.documentElement.dataset.actions === "yes";
const by = field => (one, other) => other[field] - one[field];
// The next steps, for an empty store.
function drawWelcome({queues, keys, pools, store}) {
  const empty = !queues.length && !keys.length && !pools.length;
  place("welcome").hidden = !empty;
  place("charts").hidden = place("more-charts").hidden = empty;
  if (empty) show("first-steps", ...(store.startsWith("memory") ? [element("p", {}, "It is in the memory of one process, whose program puts tasks: ", element("code", {}, 'await tenure.WorkQueue(store, "jobs").put(1)'))]
    : [element("p", {}, "Put a task, and start a worker that takes it:"), element("pre", {}, `tenure queue put jobs '{"n": 1}' --store ${store}\ntenure work module:function --queue jobs --store ${store}`)]));
}
function drawTables(state) {
  const queues = steady("queues", state.queues, q => q.name, (one, other) => other.waiting + other.leased - one.waiting - one.leased);
  const grouped = queues.some(q => q.groups) ? ["groups"] : [], apart = OF_FAMILIES.filter(state => queues.some(q => q[state]));
  const list = shown(), recent = `last ${span < HOUR ? "5 min" : "hour"}`;
  drawWelcome(state);
  place("queues").closest("section").hidden = !queues.length;
  show("queues", table([" queue", " " + recent, "waiting", "oldest", "leased", "dead", "in/s", "out/s", "waits", "runs", "delayed", ...apart, "done", ...grouped],
    queues.map(q => [link(q.name + (q.paused ? " (paused)" : ""), {queue: q.name}), spark(q.name, list), count(q.waiting), q.oldest ? spoken(q.oldest) : "-",
      count(q.leased), q.dead ? link(count(q.dead), {queue: q.name, state: "dead"}) : "0", rate(q.put_per_second), rate(q.ended_per_second),
      spoken(q.mean_wait), spoken(q.mean_run), count(q.delayed), ...apart.map(state => count(q[state])), count(q.done), ...grouped.map(() => q.groups ? link(count(q.groups), {queue: q.name, groups: "all"}) : "0")]),
    (name, text) => name === "dead" && text !== "0"));
  const running = steady("running", state.running ?? [], t => `${t.queue} ${t.id}`, by("seconds"));
  const others = state.processes.flatMap(p => Object.values(p.tasks)).reduce((sum, n) => sum + n, 0) - running.length;
  showRows("running", ...[table([" task", " queue", " process", "for"], running.map(t => [link(String(t.id), {queue: t.queue, task: t.id}), t.queue, t.process, spoken(t.seconds)])),
    others > 0 ? element("p", {class: "empty"}, `and ${count(others)} more`) : null].filter(Boolean));
  const times = l => l.count ? [l.p50, l.p95, l.p99].map(spoken).join(" / ") : "-";
  showRows("processors", table([" processor", "processes", "busy", "out/s", "waits p50 / p95 / p99", "runs", "in all"],
    state.processors.map(p => [p.name, count(p.processes), `${count(p.busy)} of ${count(p.workers)}`, rate(p.ended_per_second),
      times(p.queued), times(p.running), times(p.total)])));
  showRows("processes", table([" process", " tasks", " idle at", "holds", "claims", "waits"],
    state.processes.map(p => [p.process, Object.entries(p.tasks).map(([queue, n]) => `${queue}: ${count(n)}`).join(", ") || "-",
      p.idle.join(", ") || "-", ...[p.holds, p.claims, p.waits].map(count)])));
  const keys = steady("keys", state.keys, k => `${k.kind} ${k.name}`, by("waits"));
  const holder = (k, one) => MAY_ACT && one.token ? [button("Break", {action: "break", kind: k.kind, name: k.name, token: one.token}, true, `Break ${k.kind} ${k.name}, held by ${one.process}`), " "] : [];
  // others know a leader by its node
  const inWords = one => one.node && one.node !== one.process ? `${one.node} (${one.process}, ${spoken(one.seconds)})` : `${one.process} (${spoken(one.seconds)})`;
  const who = (list, total, actions = () => []) => !list.length ? "-" : element("span", {}, ...list.slice(0, 3).flatMap((one, i) =>
    [...(i ? [", "] : []), ...actions(one), inWords(one)]), total > 3 ? `, and ${count(total - 3)} more` : "");
  showRows("keys", table([" key", "used", " held by", " waited for by"],
    keys.map(k => [`${k.kind} ${k.name}`, k.capacity < 2 ** 30 ? `${count(k.used)} of ${count(k.capacity)}` : count(k.held),
      who(k.holders, k.held, one => holder(k, one)), who(k.waiting, k.waits)])));
  showRows("pools", table([" pool", "free slots", "claimed", "resting", "retired", "waiting"],
    state.pools.map(p => [link(p.name, {pool: p.name}), count(p.free), `${count(p.claimed)} of ${count(p.free + p.claimed + p.resting + p.retired)}`, ...[p.resting, p.retired, p.waiting].map(count)])));
  const limiters = steady("limiters", state.limiters, l => l.name, by("waits"));
  const booked = l => l.limits.map(b => `${count(b.booked)} ${b.unit} per ${spoken(b.per)}`).join(", ");
  showRows("limiters", table([" limiter", "held off for", "callers wait for", " booked", ...(MAY_ACT ? [" actions"] : [])],
    limiters.map(l => [l.name, l.held_off ? spoken(l.held_off) : "-", l.waits ? spoken(l.waits) : "-", booked(l) || "-",
      ...(MAY_ACT ? [l.held_off ? button("Release", {action: "release", name: l.name}, false, `Release limiter ${l.name}`) : ""] : [])])));
}
function drawFailures(found) {
  const kinds = steady("failures", found.kinds, k => `${k.queue} ${k.type}`, (one, other) => one.latest - other.latest);
  const more = found.more ? element("p", {class: "empty"}, "there are more, which are still being read") : null;
  showRows("failures", ...[table([" error", " queue", "dead", "delayed", "latest", " latest error"], kinds.map(k => [
    link(k.type, {queue: k.queue, state: k.dead ? "dead" : "delayed", ...(k.error?.includes(k.type) ? {find: k.type} : {})}), k.queue, count(k.dead), count(k.delayed),
    k.delayed ? "now" : spoken(k.latest), link(k.error ? shortened(k.error, 90) : `task ${k.task}`, {queue: k.queue, task: k.task})]),
    (name, text) => name === "dead" && text !== "0"), more].filter(Boolean));
}
