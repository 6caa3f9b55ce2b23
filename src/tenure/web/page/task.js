// One task, with all that is known of it, and what this page has seen of it.
const histories = {};
const clock = () => new Date().toLocaleTimeString("en-GB", {timeZoneName: "short"});
function historyOf(place) {
  return [element("h3", {}, "Seen by this page"), element("p", {class: "empty"}, "The store keeps the times of failed tries only; spans have those of all."), element("ol", {}, ...histories[place].map(([at, text]) => element("li", {}, `${at}: ${text}`)))];
}
const taskLink = t => link(`task ${t.id} of ${t.queue}`, {queue: t.queue, task: t.id});
const stateOf = t => `${t.state}${t.unfinished ? `, ${count(t.unfinished)} unfinished children` : ""}`;
// The tasks below a task, indented by how deep they are.
const treeOf = t => !t.tree.length ? [] : [element("h3", {}, "Children"), table([" child", " task", " state"],
    t.tree.map(one => ["\u2003".repeat(one.depth - 1) + one.name, taskLink(one), stateOf(one)])),
  ...(t.more ? [element("p", {class: "empty"}, "and more")] : [])];
// What is undone when the task ends.
const FATES = {unfinished: "under way", done: "undone", dead: "not undone"};
const releasesOf = t => !t.releases.length ? [] : [element("h3", {}, "Releases"), table([" release", " task", " state"],
  t.releases.map(r => [r.name, taskLink(r), (FATES[r.state] ?? r.state) + (r.error ? `: ${r.error}` : "")]))];
async function lookAtTask(where) {
  const t = await ask(`${queueOf(where)}/tasks/${encodeURIComponent(where.task)}`);
  if (!t) throw new Error("there is no such task, or not any more");
  const seen = histories[location.hash] ??= [];
  const now = `${t.state}${t.process ? ` to ${t.process}` : ""}, attempts ${t.attempts}, deliveries ${t.deliveries}${t.progress ? `, progress ${shortened(t.progress, 80)}` : ""}`;
  if (!seen.length || seen[seen.length - 1][1] !== now) seen.push([clock(), now]);
  const facts = [["state", t.state], ["put", ago(t.put)], ["ready", t.rank || t.state === "delayed" ? "" : ago(Math.max(t.age, 0))],
    ["started", ago(t.started)], ["process", t.process], ["ended", ago(t.ended)], ["priority", count(t.priority)], ["attempts", count(t.attempts)], ["deliveries", count(t.deliveries)],
    ["parent", t.parent && taskLink({id: t.parent, queue: t.parent_queue})], ["children", t.children ? `${count(t.children)} unfinished` : ""],
    ["waits for", t.waits_for.length ? element("span", {}, ...t.waits_for.flatMap((one, i) => [i ? " > " : "", `${one.name}: `, taskLink(one), `, ${one.state}`])) : ""],
    ...(t.release ? [["release", t.release + (t.state === "dead" ? ", not undone" : "")]] : []), ["key", t.key], ["group", t.group], ["deadline", t.deadline === null ? "" : ahead(Math.max(t.deadline, 0))], ["timeout", t.timeout === null ? "" : `${spoken(t.timeout)} for each try`], ["retry", t.retry], ["progress", t.progress], ["payload", t.payload], ["result", t.result], ["error", t.error],
    ...Object.entries(t.meta).map(([name, value]) => [`meta ${name}`, value])].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const acts = !MAY_ACT ? [] : t.state === "dead" ? [button("Requeue", {action: "requeue", queue: where.queue, ids: [t.id]})]
    : t.rank ? [] : [...(t.state === "delayed" ? [button("Make ready now", {action: "edit", queue: where.queue, id: t.id, delay: 0})] : []),
      ...(t.state === "delayed" || t.state === "waiting" ? [1, -1].map(step => button(step > 0 ? "Raise the priority" : "Lower the priority",
        {action: "edit", queue: where.queue, id: t.id, priority: t.priority + step})) : []), button("Cancel the task", {action: "cancel", queue: where.queue, ids: [t.id]}, true)];
  return [element("div", {class: "bar"}, ...acts), element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    ...(t.traceback ? [element("h3", {}, "Traceback"), element("pre", {tabindex: 0, role: "region", "aria-label": "Traceback"}, t.traceback)] : []),
    ...(t.failed_tries?.length ? [element("h3", {}, "Tries that failed"), element("ul", {}, ...t.failed_tries.map(line => element("li", {}, line)))] : []),
    ...releasesOf(t), ...treeOf(t), ...historyOf(location.hash)];
}
