// A queue with its tasks, and one task: in the panel, as the address says behind the #.
const STATES = ["waiting", "delayed", "leased", "dead", "ended"];
const route = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const resource = where => "queues/" + encodeURIComponent(where.queue) + "/tasks" + (where.task ? "/" + encodeURIComponent(where.task)
  : "?" + new URLSearchParams({state: where.state || "waiting", after: where.after || "", find: where.find || ""}));
async function ask(path, options) {
  const answer = await fetch(path, {cache: "no-store", ...options});
  const text = await answer.text();
  let said;
  try { said = JSON.parse(text); } catch { said = {error: text.trim()}; }
  if (!answer.ok) throw new Error(said.error || `status ${answer.status}`);
  return said;
}
const histories = {};
let opened = null, timer = 0;
function openPanel() {
  clearTimeout(timer);
  const where = route(), panel = place("panel");
  if (!where.queue) return panel.open ? panel.close() : undefined;
  opened = location.hash;
  place("panel-title").textContent = spelled(where.task ? `Task ${where.task} of ${where.queue}` : `Queue ${where.queue}`);
  place("panel-body").replaceChildren(where.task ? element("p", {}, link("All tasks of the queue", {queue: where.queue})) : searchForm(where),
    element("div", {id: "found"}, element("p", {class: "empty"}, "loading")));
  if (!panel.open) panel.showModal();
  place("panel-title").focus();
  return look(where);
}
function searchForm(where) {
  const form = element("form", {role: "search"},
    element("label", {}, "state", element("select", {name: "state"}, ...STATES.map(
      state => element("option", {value: state, selected: state === (where.state || "waiting") ? "" : null}, state)))),
    element("label", {}, "id, key, group, or text of the error", element("input", {type: "search", name: "find"})),
    element("button", {}, "Search"));
  form.elements.find.value = where.find || "";
  const go = () => { location.hash = new URLSearchParams({queue: where.queue, state: form.elements.state.value, find: form.elements.find.value.trim()}); };
  form.addEventListener("submit", event => { event.preventDefault(); go(); });
  form.elements.state.addEventListener("change", go);
  return form;
}
async function look(where) {
  const mine = location.hash;
  let found;
  try {
    const said = await ask(resource(where));
    found = where.task ? taskFound(where, said) : tasksFound(where, said);
  } catch (problem) {
    found = [element("p", {class: "bad"}, problem.message)];
    if (where.task && histories[mine]) found.push(...historyOf(mine));
  }
  if (mine !== location.hash || !place("panel").open) return;
  show("found", ...found);
  clearTimeout(timer);
  // a search reads many tasks: it is not repeated
  if (!where.find) timer = setTimeout(look, 2000, where);
}
const queueActions = queue => !MAY_ACT ? [] : [element("p", {class: "bar"}, button("Pause", {action: "pause", queue}),
  button("Resume", {action: "resume", queue}), button("Requeue all dead tasks", {action: "requeue", queue, all: true}),
  ...STATES.filter(state => state !== "leased" && state !== "ended").map(state => button(`Purge ${state} tasks`, {action: "purge", queue, states: [state]}, true)))];
function tasksFound(where, said) {
  const rows = said.tasks.map(t => [link(String(t.id), {queue: where.queue, task: t.id}), t.state, spoken(Math.max(t.age, 0)), count(t.attempts), t.key || "-", t.group || "-",
    t.error ? shortened(t.error, 120) : "-"]);
  const more = said.next ? element("p", {}, link("More", {...where, after: said.next})) : null;
  const looked = where.find ? element("p", {class: "empty"}, `${count(said.looked_at)} ${said.state} tasks were looked at`) : null;
  return [...queueActions(where.queue), table([" id", " state", "age", "attempts", " key", " group", " error"], rows), looked, more].filter(Boolean);
}
const clock = () => new Date().toLocaleTimeString("en-GB");
function historyOf(place) {
  return [element("h3", {}, "Seen by this page"), element("ol", {}, ...histories[place].map(([at, text]) => element("li", {}, `${at}: ${text}`)))];
}
function taskFound(where, t) {
  const seen = histories[location.hash] ??= [];
  const now = `${t.state}, ${t.attempts} failed, ${t.deliveries} deliveries${t.progress ? `, progress ${shortened(t.progress, 80)}` : ""}`;
  if (!seen.length || seen[seen.length - 1][1] !== now) seen.push([clock(), now]);
  const facts = [["state", t.state], ["age", spoken(Math.max(t.age, 0))], ["priority", count(t.priority)], ["failed tries", count(t.attempts)], ["deliveries", count(t.deliveries)],
    ["key", t.key], ["group", t.group], ["progress", t.progress], ["payload", t.payload], ["result", t.result], ["error", t.error],
    ...Object.entries(t.meta).map(([name, value]) => [`meta ${name}`, value])].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const acts = !MAY_ACT ? [] : t.state === "dead" ? [button("Requeue", {action: "requeue", queue: where.queue, ids: [t.id]})]
    : t.rank ? [] : [button("Cancel the task", {action: "cancel", queue: where.queue, ids: [t.id]}, true)];
  return [element("div", {class: "bar"}, ...acts), element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    ...(t.traceback ? [element("h3", {}, "Traceback"), element("pre", {tabindex: 0, role: "region", "aria-label": "Traceback"}, t.traceback)] : []),
    ...(t.earlier_errors?.length ? [element("h3", {}, "Earlier errors"), element("ul", {}, ...t.earlier_errors.map(line => element("li", {}, line)))] : []),
    ...historyOf(location.hash)];
}
