// The page: it asks once a second, and changes nothing that has the focus.
let announced = "";
function announce(text) {
  // only what is new is announced to those who listen
  if (text !== announced) place("news").textContent = spelled(announced = text);
}
function say(text, bad) {
  place("status").textContent = spelled(text);
  place("status").className = bad ? "bad" : "";
}
let polls = 0;
async function poll() {
  try {
    const state = await ask("state.json", {}, 10);
    lost = null;
    remember({at: seconds(), ...state.totals, queues: busiest(state.queues)});
    drawCharts();
    drawTables(state);
    drawSchedules(state.schedules ?? []);
    drawTroubles(state);
    drawGraph(state);
    const more = state.more.length ? `, not all ${state.more.join(" and ")} are shown` : "";
    say(`${state.store}, namespace ${state.namespace}, round trip ${spoken(state.ping)}${more}`, false);
    document.documentElement.dataset.polls = ++polls;
  } catch (problem) {
    lost = {since: samples.length ? samples[samples.length - 1].at : null, why: problem.message};
    say("not connected", true);
    drawTroubles();
  }
  setTimeout(poll, 1000);
}
async function pollFailures() {
  try {
    const found = await ask("failures.json");
    failuresSeen = found.kinds;
    drawFailures(found);
  } catch (problem) {
    show("failures", element("p", {class: "bad"}, problem.message));
  }
  setTimeout(pollFailures, 5000);
}
async function start() {
  try {
    recall(await ask("history.json"));
  } catch { /* the first poll says what is wrong */ }
  poll();
  pollFailures();
  openPanel();
}
document.addEventListener("pointermove", point);
document.addEventListener("keydown", readByKey);
document.addEventListener("focusout", event => {
  if (cursor !== null && event.target.closest(".charts figure")) { cursor = null; place("reading").textContent = ""; }
});
document.addEventListener("change", event => {
  if (event.target.name === "span") { span = Number(event.target.value); cursor = null; drawCharts(); }
  if (event.target.name === "tick") { ticked[event.target.checked ? "add" : "delete"](Number(event.target.value)); show("found", ...listed()); }
});
document.addEventListener("click", event => {
  const pressed = event.target.closest("button");
  if (pressed?.dataset.action) confirmFirst(JSON.parse(pressed.dataset.action));
  if (pressed?.dataset.do === "close") place("panel").close();
  if (pressed?.dataset.do === "keep") place("confirm").close();
  if (pressed?.dataset.do === "confirm") carryOut();
  if (pressed?.dataset.do === "reload") location.reload();
  if (pressed?.dataset.do === "aside") putAside(adviceOf(latest));
  if (pressed?.dataset.do === "advice") putAside([]);
  if (pressed?.dataset.do === "tick") tickAll();
  if (pressed?.dataset.do === "stop") stopSearch();
  if (pressed?.dataset.do === "on") searchOn();
});
place("panel").addEventListener("close", () => {
  clearTimeout(timer);
  if (location.hash === opened) history.pushState(null, "", location.pathname + location.search);
});
addEventListener("resize", () => drawCharts());
addEventListener("hashchange", openPanel);
addEventListener("popstate", openPanel);
start();
