// A queue, a task or a pool in the panel, as the address says behind the #.
const route = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
async function ask(path, options, patience = 30) {
  let answer;
  try {
    answer = await fetch(path, {cache: "no-store", signal: AbortSignal.timeout(patience * 1000), ...options});
  } catch (problem) {
    // a cut link reports nothing, however long the page waits
    throw new Error(problem.name === "TimeoutError" ? `no answer within ${patience} s` : "the server of this page cannot be reached");
  }
  const text = await answer.text();
  let said;
  try { said = JSON.parse(text); } catch { said = {error: text.trim()}; }
  if (!answer.ok) throw new Error(said.error || `status ${answer.status}`);
  return said;
}
let opened = null, timer = 0, current = {};
const panelShows = hash => hash === location.hash && place("panel").open;
function openPanel() {
  clearTimeout(timer);
  quest = null;
  ticked.clear();
  const where = route(), panel = place("panel");
  if (!where.queue && !where.pool) return panel.open ? panel.close() : undefined;
  opened = location.hash;
  place("panel-title").textContent = spelled(where.pool ? `Pool ${where.pool}` : where.task ? `Task ${where.task} of ${where.queue}`
    : `${where.groups ? "Groups of queue" : where.workers ? "Workers of queue" : "Queue"} ${where.queue}`);
  const above = where.pool ? null : where.task || where.groups || where.workers ? element("p", {}, link("The queue and its tasks", {queue: where.queue})) : searchForm(where);
  const more = above?.nodeName !== "FORM" ? [] : [element("p", {}, link("Workers of the queue", {queue: where.queue, workers: "all"})), ...(MAY_ACT ? [selectForm()] : [])];
  place("panel-body").replaceChildren(...[above, more.length ? element("div", {id: "queue-charts", class: "charts"}) : null, ...more, element("div", {id: "found"}, element("p", {class: "empty"}, "loading"))].filter(Boolean));
  if (!panel.open) panel.showModal();
  place("panel-title").focus();
  current = where;
  drawCharts();
  return look(where);
}
async function look(where) {
  const mine = location.hash;
  current = where;
  let found;
  try {
    found = await (where.pool ? lookAtPool(where) : where.task ? lookAtTask(where) : where.groups ? lookAtGroups(where) : where.workers ? lookAtWorkers(where) : lookAtQueue(where));
  } catch (problem) {
    found = [element("p", {class: "bad"}, problem.message)];
    if (where.task && histories[mine]) found.push(...historyOf(mine));
  }
  if (!panelShows(mine)) return;
  show("found", ...found);
  clearTimeout(timer);
  if (where.find) await seek();
  else timer = setTimeout(() => look(current), 2000);
}
async function lookAtPool(where) {
  const said = await ask(`pools/${encodeURIComponent(where.pool)}/resources?` + new URLSearchParams({after: where.after || ""}));
  const more = said.next ? element("p", {}, link("More", {pool: where.pool, after: said.next})) : null;
  return [element("p", {}, said.waiting === 1 ? "1 task waits for a resource" : `${count(said.waiting)} tasks wait for a resource`),
    table([" resource", " state", "claimed", " last claimed by", "rests for", "preference", " reason"],
      said.resources.map(r => [r.resource, r.state, r.slots === 1 ? count(r.claimed) : `${count(r.claimed)} of ${count(r.slots)}`, r.process || "-", r.rest ? spoken(r.rest) : "-", count(r.preference), r.reason || "-"])), more].filter(Boolean);
}
