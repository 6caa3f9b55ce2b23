// Actions: each is confirmed in words, and sent with a header that no form of another site can send.
let asked = null, clearing = 0, stays = 8000;
const LOST = 'ends with LeaseLost("broken"). A program that does not catch this error ends with it.';
const WORDS = {
  requeue: a => a.all ? `Make all dead tasks of ${a.queue} ready again? Their attempts start anew.`
    : `Make task ${a.ids.join(", ")} of ${a.queue} ready again? Its attempts start anew.`,
  edit: a => `Let task ${a.id} of ${a.queue} ${a.delay === 0 ? "be ready now" : `have the priority ${a.priority}`}?`,
  cancel: a => `Cancel task ${a.ids.join(", ")} of ${a.queue}?`,
  purge: a => `Delete all ${a.states.join(", ")} tasks of ${a.queue}? This cannot be undone.`,
  pause: a => `Hand out no more tasks of ${a.queue}, to any process?`,
  resume: a => `Hand out tasks of ${a.queue} again?`,
  break: a => a.kind === "election" ? `End the term of the leader of ${a.name}? The next candidate leads. A leader in lead() campaigns again; a block of term() ${LOST}`
    : `Take ${a.kind} ${a.name} from its holder? The next waiter gets it. The holder's block is cancelled and ${LOST}`,
};
const tasks = n => n === 1 ? "1 task" : `${count(n)} tasks`;
const OUTCOMES = {
  requeue: n => `${tasks(n)} made ready again`, cancel: n => `${tasks(n)} cancelled`, purge: n => `${tasks(n)} deleted`,
  edit: () => `task ${asked.id} is changed`, pause: () => `${asked.queue} is paused`, resume: () => `${asked.queue} is resumed`, break: () => `${asked.kind} ${asked.name} is broken`,
};
function confirmFirst(action) {
  asked = action;
  place("confirm-text").textContent = spelled(WORDS[action.action](action));
  place("confirm-do").textContent = action.action[0].toUpperCase() + action.action.slice(1);
  place("confirm-do").className = ["cancel", "purge", "break"].includes(action.action) ? "bad" : "";
  place("confirm-do").hidden = false;
  place("confirm-problem").textContent = "";
  place("confirm").querySelector("[data-do=keep]").textContent = "Keep everything as it is";
  place("confirm").showModal();
}
// What has happened is said in a line that goes away; a dialog that is open hides the page's own.
function tell(text) {
  for (const id of ["outcome", "panel-outcome"]) place(id).textContent = "";
  place(place("panel").open ? "panel-outcome" : "outcome").textContent = spelled(text);
  clearTimeout(clearing);
  clearing = setTimeout(tell, stays, "");
}
async function carryOut() {
  place("confirm-do").hidden = true;
  place("confirm").querySelector("[data-do=keep]").focus();
  try {
    const said = await ask("actions", {method: "POST", body: JSON.stringify(asked), headers: {"Content-Type": "application/json", "X-Tenure-Action": "1"}});
    place("confirm").close();
    tell(said.changed ? OUTCOMES[asked.action](said.changed) : "nothing was changed");
  } catch (problem) {
    place("confirm-problem").textContent = spelled(problem.message);
    place("confirm").querySelector("[data-do=keep]").textContent = "Close";
  }
  if (place("panel").open) {
    await look(current);
    // the button may be gone
    if (!place("confirm").open && document.activeElement === document.body) place("panel-title").focus();
  }
}
