// Actions: each is confirmed in words, and sent with a header that no form of another site can send.
let asked = null;
const WORDS = {
  requeue: a => a.all ? `Make all dead tasks of ${a.queue} ready again?` : `Make task ${a.ids.join(", ")} of ${a.queue} ready again, with all its attempts?`,
  cancel: a => `Cancel task ${a.ids.join(", ")} of ${a.queue}?`,
  purge: a => `Delete all ${a.states.join(", ")} tasks of ${a.queue}? This cannot be undone.`,
  pause: a => `Hand out no more tasks of ${a.queue}, to any process?`,
  resume: a => `Hand out tasks of ${a.queue} again?`,
  break: a => `Take ${a.kind} ${a.name} from its holder? Its block is cancelled, and the next waiter gets it.`,
};
function confirmFirst(action) {
  asked = action;
  place("confirm-text").textContent = spelled(WORDS[action.action](action));
  place("confirm-do").textContent = action.action[0].toUpperCase() + action.action.slice(1);
  place("confirm-do").hidden = false;
  place("confirm-outcome").textContent = "";
  place("confirm").querySelector("[data-do=keep]").textContent = "Keep everything as it is";
  place("confirm").showModal();
}
async function carryOut() {
  place("confirm-do").hidden = true;
  place("confirm").querySelector("[data-do=keep]").focus();
  try {
    const said = await ask("actions", {method: "POST", body: JSON.stringify(asked), headers: {"Content-Type": "application/json", "X-Tenure-Action": "1"}});
    place("confirm-outcome").textContent = said.changed ? `Done: ${count(said.changed)} changed.` : "Nothing was changed.";
  } catch (problem) {
    place("confirm-outcome").textContent = spelled(problem.message);
  }
  place("confirm").querySelector("[data-do=keep]").textContent = "Close";
  if (place("panel").open) look(route());
}
