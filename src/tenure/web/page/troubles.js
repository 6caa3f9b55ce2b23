// The faults, the worst first, each in a sentence with its button; without a fault the page says "All is well".
const LATE = 60, IDLE = 5, AT_MOST = 8;
let failuresSeen = [], lost = null;
const trouble = (bad, text, ...acts) => ({bad, text, acts: acts.filter(Boolean)});
const ofQueue = (q, state) => element("a", {href: "#" + new URLSearchParams({queue: q.name, ...(state ? {state} : {})}), "aria-label": spelled(`Open queue ${q.name}`)}, "Open");
const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;
const act = (text, action, label) => MAY_ACT ? button(text, action, false, label) : null;
const remedy = () => element("a", {href: document.documentElement.dataset.doctor, target: "_blank", rel: "noreferrer"}, "What to do");
function ofDeadlock(d) {
  // two tasks of a process are told apart
  const twice = w => d.waits.filter(other => other.process === w.process).length > 1;
  const waits = d.waits.map(w => element("div", {}, `${w.process}${w.task && d.certain && twice(w) ? " task " + w.task : ""} holds `
    + `${w.holds.join(", ") || "nothing"} and waits for ${w.for}`));
  const behind = d.behind ? element("div", {}, `${count(d.behind)} more wait behind them`) : null;
  return {...trouble(true, `${d.certain ? "Deadlock" : "Possible deadlock"}, for ${spoken(d.seconds)}`), more: [...waits, behind], kind: "deadlock"};
}
// Queues that wait for a process are often several: when the workers of all have stopped.
function ofIdle(queues) {
  if (!queues.length) return [];
  const names = queues.slice(0, 3).map(q => q.name).join(", ") + (queues.length > 3 ? `, and ${count(queues.length - 3)} more` : "");
  // no other process can work on a store in memory
  const command = latest.store.startsWith("memory") ? null : element("div", {}, element("code", {}, `tenure work module:function --queue ${queues[0].name} --store ${latest.store}`));
  return [{...trouble(true, `No process works on ${names}: ${many(queues.reduce((sum, q) => sum + q.waiting, 0), "task waits", "tasks wait")}, for up to ${
    spoken(Math.max(...queues.map(q => q.oldest)))}`, ofQueue(queues[0], "waiting")), more: [command]}];
}
// What is a choice, not a fault: it stands last, and can be put aside in this browser.
const ADVICE = /^the append-only file is off/;
const aside = () => JSON.parse(localStorage.getItem("aside") ?? "[]");
const adviceOf = state => (state?.problems ?? []).filter(text => ADVICE.test(text));
function putAside(texts) {
  localStorage.setItem("aside", JSON.stringify(texts));
  drawTroubles();
}
function troublesOf(state) {
  const dead = name => failuresSeen.filter(k => k.queue === name).reduce((sum, k) => sum + k.dead, 0);
  return [
    ...state.deadlocks.map(ofDeadlock),
    ...(state.problems ?? []).filter(text => !ADVICE.test(text)).map(text => ({...trouble(true, text, remedy()), kind: "problem"})),
    ...ofIdle(state.queues.filter(q => q.takers === 0 && q.waiting && q.oldest >= IDLE && !q.paused).sort(by("waiting"))),
    ...(state.schedules ?? []).filter(s => s.late > LATE).map(s =>
      trouble(true, `Schedule ${s.name} of ${s.queue} has stopped: its tick is late by ${spoken(s.late)}`,
        act("Run now", {action: "run_schedule", queue: s.queue, name: s.name}, `Run now: schedule ${s.name} of ${s.queue}`))),
    ...state.queues.filter(q => q.dead).map(q => trouble(dead(q.name) > 0, `${many(q.dead, "task")} of ${q.name} ${q.dead === 1 ? "is" : "are"} dead${
      !dead(q.name) ? "" : dead(q.name) < q.dead ? `, ${count(dead(q.name))} of them in the last hour` : ", all in the last hour"}`, ofQueue(q, "dead"),
    act("Requeue", {action: "requeue", queue: q.name, all: true}, `Requeue all dead tasks of ${q.name}`))),
    ...state.queues.filter(q => q.producers && !q.paused).map(q =>
      trouble(true, `${q.name} is full with ${count(q.max_size)} tasks: ${many(q.producers, "producer waits", "producers wait")}`, ofQueue(q))),
    ...state.queues.filter(q => q.paused).map(q => trouble(false, `${q.name} is paused${q.waiting ? `: ${many(q.waiting, "task waits", "tasks wait")}` : ""}`, ofQueue(q),
      act("Resume", {action: "resume", queue: q.name}, `Resume ${q.name}`))),
    ...(state.schedules ?? []).filter(s => s.paused).map(s => trouble(false, `Schedule ${s.name} of ${s.queue} is paused`,
      act("Resume", {action: "resume_schedule", queue: s.queue, name: s.name}, `Resume schedule ${s.name} of ${s.queue}`))),
    ...(state.schedules ?? []).filter(s => s.problem).map(s => trouble(false, `The ticks of schedule ${s.name} of ${s.queue} are not known here: ${s.problem}`)),
    ...adviceOf(state).filter(text => !aside().includes(text)).map(text => ({...trouble(false, text, remedy(), doing("Put aside", "aside")), kind: "problem"})),
  ].sort((one, other) => other.bad - one.bad);
}
let latest = null;
function drawTroubles(state = latest) {
  latest = state;
  if (!state && !lost) return;
  const known = state ? troublesOf(state) : [];
  const found = lost ? [trouble(true, `No news${lost.since === null ? "" : ` for ${spoken(seconds() - lost.since)}`}: ${lost.why}`, doing("Reload", "reload")), ...known] : known;
  document.body.className = lost ? "stale" : "";
  document.title = found.some(t => t.bad) ? `(${found.filter(t => t.bad).length}) tenure` : "tenure";
  const rows = found.slice(0, AT_MOST).map(t => element("div", {class: `trouble ${t.bad ? "bad" : "mild"} ${t.kind ?? ""}`},
    element("div", {}, element("strong", {}, t.text), ...(t.more ?? [])), t.acts.length ? element("span", {class: "acts"}, ...t.acts) : null));
  const left = found.length - AT_MOST;
  show("troubles", ...rows, ...(left > 0 ? [element("p", {class: "empty"}, `and ${count(left)} more`)] : []),
    ...(found.length || !state.queues.length ? [] : [element("div", {class: "trouble well"}, element("strong", {}, "All is well"))]),
    ...(adviceOf(state).some(text => aside().includes(text)) ? [element("p", {class: "empty"}, doing("Show advice again", "advice"))] : []));
  // without the times, which change with each second
  const said = found.filter(t => t.bad && t.kind !== "deadlock").map(t => t.text.replace(/[\d.,]+ (ms|s|min|h|d)\b/g, "a while"));
  announce([...(state ? state.deadlocks.map(sentence) : []), ...said].join(". "));
}
