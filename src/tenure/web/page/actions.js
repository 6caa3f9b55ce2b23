// Actions: each is confirmed in words, and sent with a header that no form of another site can send.
let asked = null, clearing = 0, stays = 8000;
const LOST = 'ends with LeaseLost("broken"). A program that does not catch this error ends with it.';
const selects = a => Object.entries(SELECTS).filter(([name]) => a[name] !== undefined).map(([name, label]) => `${label} ${a[name]}`).join(", ");
const sent = action => ({method: "POST", body: JSON.stringify(action), headers: {"Content-Type": "application/json", "X-Tenure-Action": "1"}});
const named = ({ids, queue}) => ids.length === 1 ? `task ${ids[0]} of ${queue}` : `${count(ids.length)} tasks of ${queue} (${ids.slice(0, 10).join(", ")}${ids.length > 10 ? ", ..." : ""})`;
const WORDS = {
  requeue: a => selects(a) ? `Make the dead tasks of ${a.queue} with ${selects(a)} ready again? Their attempts start anew.` : a.all ? `Make all dead tasks of ${a.queue} ready again? Their attempts start anew.`
    : `Make ${named(a)} ready again? ${a.ids.length > 1 ? "Their" : "Its"} attempts start anew.`,
  edit: a => `Let task ${a.id} of ${a.queue} ${a.delay === 0 ? "be ready now" : `have the priority ${a.priority}`}?`,
  cancel: a => selects(a) ? `Cancel the ${a.state} tasks of ${a.queue} with ${selects(a)}?` : `Cancel ${named(a)}?`,
  purge: a => a.ids ? `Delete ${named(a)}? This cannot be undone.` : `Delete ${selects(a) ? "the" : "all"} ${a.states.join(", ")} tasks of ${a.queue}${selects(a) ? ` with ${selects(a)}` : ""}? This cannot be undone.`,
  pause: a => `Hand out no more tasks of ${a.queue}, to any process?`,
  resume: a => `Hand out tasks of ${a.queue} again?`,
  pause_schedule: a => `Put nothing at the ticks of schedule ${a.name} of ${a.queue}, until it is resumed?`,
  resume_schedule: a => `Put tasks at the ticks of schedule ${a.name} of ${a.queue} again, from now on?`,
  run_schedule: a => `Put a task of schedule ${a.name} into ${a.queue} now, beside those of its ticks?`,
  remove_schedule: a => `Forget schedule ${a.name} of ${a.queue}? This cannot be undone.`,
  release: a => `End the hold of limiter ${a.name} in all processes? Its callers go on at its rate.`,
  break: a => a.kind === "election" ? `End the term of the leader of ${a.name}? The next candidate leads. A leader in lead() campaigns again; a block of term() ${LOST}`
    : `Take ${a.kind} ${a.name} from its holder? The next waiter gets it. The holder's block is cancelled and ${LOST}`,
};
const tasks = n => n === 1 ? "1 task" : `${count(n)} tasks`;
const OUTCOMES = {
  requeue: n => `${tasks(n)} made ready again`, cancel: n => `${tasks(n)} cancelled`, purge: n => `${tasks(n)} deleted`,
  edit: () => `task ${asked.id} is changed`, pause: () => `${asked.queue} is paused`, resume: () => `${asked.queue} is resumed`, break: () => `${asked.kind} ${asked.name} is broken`,
  release: () => `limiter ${asked.name} is released`, pause_schedule: () => `schedule ${asked.name} is paused`, resume_schedule: () => `schedule ${asked.name} is resumed`,
  run_schedule: () => `a task of schedule ${asked.name} was put`, remove_schedule: () => `schedule ${asked.name} is removed`,
};
function confirmFirst(action) {
  asked = action;
  place("confirm-text").textContent = spelled(WORDS[action.action](action));
  const [verb] = action.action.split("_");
  place("confirm-do").textContent = verb[0].toUpperCase() + verb.slice(1);
  place("confirm-do").className = ["cancel", "purge", "break", "remove"].includes(action.action) ? "bad" : "";
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
    const said = await ask("actions", sent(asked));
    ticked.clear();
    place("confirm").close();
    tell(said.changed ? OUTCOMES[asked.action](said.changed) : "nothing was changed");
  } catch (problem) {
    place("confirm-problem").textContent = spelled(problem.message);
    place("confirm").querySelector("[data-do=keep]").textContent = "Close";
  }
  if (place("panel").open) {
    if (place("selected")) show("selected");
    await look(current);
    // the button may be gone
    if (!place("confirm").open && document.activeElement === document.body) place("panel-title").focus();
  }
}
