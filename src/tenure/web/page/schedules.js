// The schedules of all queues, and the buttons that change them.
function drawSchedules(list) {
  const ticks = s => s.cron ?? `every ${spoken(s.every)}`;
  const state = s => s.problem ? "not known" : s.paused ? "paused" : s.late > LATE ? `late by ${spoken(s.late)}` : s.next ? "on time" : "over";
  const about = s => ({queue: s.queue, name: s.name}), of = s => `schedule ${s.name} of ${s.queue}`;
  const acts = s => element("span", {class: "acts"}, button("Run now", {action: "run_schedule", ...about(s)}, false, `Run now: ${of(s)}`),
    s.paused ? button("Resume", {action: "resume_schedule", ...about(s)}, false, `Resume ${of(s)}`) : button("Pause", {action: "pause_schedule", ...about(s)}, false, `Pause ${of(s)}`),
    // a schedule of a program begins anew in that program
    s.kept_in_store ? button("Remove", {action: "remove_schedule", ...about(s)}, true, `Remove ${of(s)}`) : null);
  const moment = text => text ? text.replace("T", " ").replace(/(\.\d+)?[+-]\d\d:\d\d$/, "") : "-";
  showRows("schedules", table([" schedule", " queue", " ticks", " zone", " last", " next", " state", ...(MAY_ACT ? [" actions"] : [])], list.map(s => [
    s.name, link(s.queue, {queue: s.queue}), ticks(s), s.tz, moment(s.last), s.next_in === null ? "-" : ahead(Math.max(0, s.next_in)),
    s.late > LATE && !s.paused ? element("span", {class: "bad"}, state(s)) : state(s),
    ...(MAY_ACT ? [acts(s)] : [])])));
}
