// A queue: its counts, its longest groups, and the tasks in one state.
const STATES = ["waiting", "delayed", "leased", "suspended", "ending", "dead", "ended"], OF_FAMILIES = ["suspended", "ending"];
const FIRST = ["dead", "waiting", "leased", "delayed", "suspended", "ending"];
const queueOf = where => "queues/" + encodeURIComponent(where.queue);
const tasksOf = where => queueOf(where) + "/tasks?" + new URLSearchParams({state: where.state, after: where.after || "", find: where.find || ""});
function searchForm(where) {
  const form = element("form", {role: "search"},
    element("label", {}, "id, key, group, or text of the error", element("input", {type: "search", name: "find"})), element("button", {}, "Search"));
  form.elements.find.value = where.find || "";
  form.addEventListener("submit", event => {
    event.preventDefault();
    location.hash = new URLSearchParams({queue: where.queue, ...(current.state ? {state: current.state} : {}), find: form.elements.find.value.trim()});
  });
  return form;
}
// It opens on the state that has tasks, those that failed first, and stays there.
const opensOn = counts => FIRST.find(state => counts[state]) ?? "ended";
function groupsTable(where, groups) {
  const isPaced = groups.some(g => g.starts_in), starts = g => [g.held_off ? `held off for ${spoken(g.held_off)}` : g.starts_in ? `in ${spoken(g.starts_in)}` : "now"];
  return table([" group", "waiting", "leased", "delayed", ...(isPaced ? ["next start"] : [])],
    groups.map(g => [link(g.children ? `${g.group} (children)` : g.group, {queue: where.queue, state: g.waiting ? "waiting" : g.leased ? "leased" : "delayed", find: g.group}),
      ...[g.waiting, g.leased, g.delayed].map(count), ...(isPaced ? starts(g) : [])]));
}
async function lookAtGroups(where) {
  const counts = await ask(`${queueOf(where)}/counts?limit=256`), left = counts.groups - counts.longest_groups.length;
  return [groupsTable(where, counts.longest_groups), left > 0 ? element("p", {class: "empty"}, `and ${count(left)} shorter groups`) : null].filter(Boolean);
}
async function lookAtWorkers(where) {
  const {workers} = await ask(`${queueOf(where)}/workers`), most = 20;
  const tasks = w => !w.tasks.length ? "-" : element("span", {}, ...w.tasks.slice(0, most).flatMap((t, i) => [i ? ", " : "", link(String(t.id), {queue: where.queue, task: t.id}), ` (${spoken(t.seconds)})`]),
    w.tasks.length > most ? `, and ${count(w.tasks.length - most)} more` : "");
  return [workers.length ? table([" process", "tasks", "longest", " has", " waits for tasks"], workers.map(w => [w.process, count(w.tasks.length), w.tasks.length ? spoken(w.tasks[0].seconds) : "-", tasks(w), w.waits ? "yes" : "no"]))
    : element("p", {class: "empty"}, "no process works on this queue")];
}
async function lookAtQueue(where) {
  const hash = location.hash, counts = await ask(`${queueOf(where)}/counts?limit=5`);
  if (!panelShows(hash)) return [];
  current = {...where, state: where.state || opensOn(counts)};
  const head = queueHead(current, counts);
  if (current.find) {
    quest ??= {tasks: new Map(), looked: 0, next: "", enough: ENOUGH, going: true, seeking: false};
    Object.assign(quest, {head, total: counts[current.state]});
    listed = questFound;
    return questFound();
  }
  const said = await ask(tasksOf(current));
  listed = () => [...head, ...tasksTable(current, said.tasks), said.next ? element("p", {}, link("More", {...current, after: said.next})) : null].filter(Boolean);
  return listed();
}
function queueHead(where, counts) {
  const states = STATES.filter(state => counts[state] || state === where.state || !OF_FAMILIES.includes(state));
  const tabs = element("nav", {"aria-label": "States"}, ...states.map(state => {
    const tab = link(state === "ended" ? state : `${state} ${count(counts[state])}`, {queue: where.queue, state, ...(where.find ? {find: where.find} : {})});
    if (state === where.state) tab.setAttribute("aria-current", "page");
    return tab;
  }));
  const all = counts.groups > counts.longest_groups.length ? [" ", link(`all ${count(counts.groups)}`, {queue: where.queue, groups: "all"})] : [];
  const groups = counts.groups && !where.find ? [element("h3", {}, "Longest groups", ...all), groupsTable(where, counts.longest_groups), element("h3", {}, "Tasks")] : [];
  return [tabs, ...queueActions(where, counts), ...groups];
}
function queueActions({queue, state}, counts) {
  const pace = paceOf(counts);
  const paused = counts.paused ? element("span", {class: "empty"}, "paused: no tasks are handed out") : null;
  const acts = !MAY_ACT ? [] : [
    counts.paused || counts.held_off ? button("Resume", {action: "resume", queue}) : null,
    counts.paused ? null : button("Pause", {action: "pause", queue}),
    state === "dead" && counts.dead ? button("Requeue all dead tasks", {action: "requeue", queue, all: true}) : null,
    ["waiting", "delayed", "dead"].includes(state) && counts[state] ? button(`Purge all ${state} tasks`, {action: "purge", queue, states: [state]}, true) : null];
  return paused || pace || acts.length ? [element("p", {class: "acts"}, paused, pace ? element("span", {class: "empty"}, pace) : null, ...acts)] : [];
}
// The settings of a queue, and when its next task may start.
function paceOf({starts_in, held_off, settings}) {
  const per = r => r >= 1 ? `${Number(r.toPrecision(3))} a second` : `1 in ${spoken(1 / r)}`;
  const said = value => value?.per ? per(value.rate / value.per) : JSON.stringify(value);
  return [
    ...Object.entries(settings).map(([name, {value, set_by}]) => `${name} ${said(value)} (${set_by})`),
    held_off ? `held off for ${spoken(held_off)}` : starts_in ? `next task in ${spoken(starts_in)}` : "",
  ].filter(Boolean).join(", ");
}
// The columns that say something: the state is in the tab, unless a search by id has found another state.
const COLUMNS = [
  [" state", t => t.state, (list, where) => where.state === "ended" || list.some(t => t.state !== where.state)],
  ["age", t => spoken(Math.max(t.age, 0)), (_, where) => where.state !== "delayed"],
  ["attempts", t => count(t.attempts), () => true],
  [" payload", t => t.payload ? shortened(t.payload, 80) : "-", list => list.some(t => t.payload)],
  [" key", t => t.key || "-", list => list.some(t => t.key)],
  [" group", t => t.group || "-", list => list.some(t => t.group)],
  [" error", t => t.error || t.release ? shortened((t.release && t.state === "dead" ? `${t.release} is not undone: ` : "") + (t.error ?? ""), 120) : "-", list => list.some(t => t.error || t.release)],
];
// What can be done with the ticked tasks of a list, each with the number of the tasks that it changes.
const ticked = new Set();
let listed = () => [];
function ticks(where, tasks) {
  if (!MAY_ACT || !tasks.length) return [];
  const chosen = tasks.filter(t => ticked.has(t.id)), can = (what, t) => (CHANGES[t.state] ?? ["purge"]).includes(what);
  const each = ["requeue", "cancel", "purge"].map(what => [what, chosen.filter(t => can(what, t))]).filter(([, list]) => list.length);
  return [element("p", {class: "acts"}, doing(chosen.length < tasks.length ? "Select all shown" : "Select none", "tick"), ...each.map(([what, list]) =>
    button(`${what[0].toUpperCase()}${what.slice(1)} ${many(list.length, "task")}`, {action: what, queue: where.queue, ids: list.map(t => t.id),
      ...(what === "purge" ? {states: [...new Set(list.map(t => t.state))]} : {})}, what !== "requeue")))];
}
function tickAll() {
  const boxes = [...place("found").querySelectorAll("[name=tick]")], all = boxes.every(box => box.checked);
  boxes.forEach(box => all ? ticked.delete(Number(box.value)) : ticked.add(Number(box.value)));
  show("found", ...listed());
}
function tasksTable(where, list) {
  const tasks = steady("found", list, t => t.id, () => 0);
  const tick = t => MAY_ACT ? [element("input", {type: "checkbox", name: "tick", value: t.id, checked: ticked.has(t.id) ? "" : null, "aria-label": `Select task ${t.id}`})] : [];
  const columns = COLUMNS.filter(([, , says]) => says(tasks, where));
  return [...ticks(where, tasks), table([" id", ...columns.map(([name]) => name)], tasks.map(t => [element("span", {}, ...tick(t), link(String(t.id), {queue: where.queue, task: t.id})), ...columns.map(([, text]) => text(t))]))];
}
// A search goes on by itself, one request after the other, until enough is found or it is stopped; it is not repeated.
const ENOUGH = 50;
let quest = null;
function questFound() {
  const {tasks, looked, total, next, going, problem} = quest;
  const progress = `${count(looked)}${total === undefined ? "" : ` of ${count(Math.max(total, looked))}`} ${current.state} tasks were looked at, ${count(tasks.size)} found`;
  return [...quest.head, element("p", {class: "acts"}, element("span", {class: "empty"}, progress), going ? doing("Stop", "stop") : next ? doing("Search on", "on") : null),
    problem ? element("p", {class: "bad"}, problem) : null, ...(tasks.size ? tasksTable(current, [...tasks.values()]) : [])].filter(Boolean);
}
async function seek() {
  const mine = quest, where = current, hash = location.hash;
  if (!mine?.going || mine.seeking) return;
  mine.seeking = true;
  while (mine.going) {
    try {
      const said = await ask(tasksOf({...where, after: mine.next}));
      for (const task of said.tasks) mine.tasks.set(task.id, task);
      Object.assign(mine, {looked: mine.looked + said.looked_at, next: said.next, problem: ""});
      mine.going &&= said.next !== "" && mine.tasks.size < mine.enough;
    } catch (problem) {
      Object.assign(mine, {going: false, problem: problem.message});
    }
    if (quest !== mine || !panelShows(hash)) return;
    show("found", ...questFound());
  }
  mine.seeking = false;
  tell(`${count(mine.tasks.size)} found`);
}
function stopSearch() {
  quest.going = false;
}
function searchOn() {
  Object.assign(quest, {going: true, enough: quest.tasks.size + ENOUGH});
  seek();
}
