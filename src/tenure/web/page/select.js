// Selected tasks of a state: counted first, and changed then.
const CHANGES = {
  waiting: ["cancel", "purge"], delayed: ["cancel", "purge"], leased: ["cancel"], suspended: ["cancel"], ending: ["cancel"],
  dead: ["requeue", "purge"], ended: ["purge"],
};
const ENDED = ["done", "discarded", "cancelled", "expired"];
const SELECTS = {group: "group", key_prefix: "key begins with", error: "type of error", older_than: "older than, in seconds"};
// The action in the server's form.
const selecting = (what, state, chosen) => ({action: what, ...chosen,
  ...(what === "cancel" ? {state} : what === "purge" ? {states: state === "ended" ? ENDED : [state]} : {})});
function selectForm() {
  const form = element("form", {id: "selection"}, ...Object.entries(SELECTS).map(([name, label]) => element("label", {}, label,
    element("input", {name, ...(name === "older_than" ? {type: "number", min: "0", step: "any", inputmode: "decimal"} : {})}))), element("button", {}, "Count"));
  form.addEventListener("submit", event => {
    event.preventDefault();
    countSelected(form);
  });
  form.addEventListener("input", () => show("selected"));
  return element("details", {}, element("summary", {}, "Select tasks, to change all of them"), form, element("p", {id: "selected", class: "acts", role: "status"}));
}
async function countSelected(form) {
  const given = [...Object.keys(SELECTS)].map(name => [name, form.elements[name].value.trim()]).filter(([, value]) => value);
  const chosen = {queue: current.queue, ...Object.fromEntries(given.map(([name, value]) => [name, name === "older_than" ? Number(value) : value]))};
  const {state} = current;
  if (!given.length) return show("selected", "Fill in one field at least.");
  try {
    const {changed} = await ask("actions", sent({...selecting(CHANGES[state][0], state, chosen), dry_run: true}));
    if (!place("selected")) return undefined;
    const each = changed ? CHANGES[state].map(what => button(`${what[0].toUpperCase()}${what.slice(1)}`, selecting(what, state, chosen), what !== "requeue")) : [];
    return show("selected", element("strong", {}, `${many(changed, `${state} task`)}`), ...each);
  } catch (problem) {
    return place("selected") && show("selected", element("span", {class: "bad"}, problem.message));
  }
}
