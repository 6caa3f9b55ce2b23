// The schedules of all queues, and the buttons that change them.
function drawSchedules(list) {
  const unit = n => [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => n % size === 0) ?? [1, "s"];
  const ticks = s => s.cron ?? `every ${s.every / unit(s.every)[0]} ${unit(s.every)[1]}`;
  const state = s => s.problem ? "not known" : s.paused ? "paused" : s.late > LATE ? `late by ${spoken(s.late)}` : s.next ? "on time" : "over";
  const about = s => ({queue: s.queue, name: s.name}), of = s => `schedule ${s.name} of ${s.queue}`;
  const acts = s => element("span", {class: "acts"}, button("Run now", {action: "run_schedule", ...about(s)}, false, `Run now: ${of(s)}`),
    s.paused ? button("Resume", {action: "resume_schedule", ...about(s)}, false, `Resume ${of(s)}`) : button("Pause", {action: "pause_schedule", ...about(s)}, false, `Pause ${of(s)}`),
    // a schedule of a program begins anew in that program
    s.kept_in_store ? button("Remove", {action: "remove_schedule", ...about(s)}, true, `Remove ${of(s)}`) : null);
  showRows("schedules", table([" schedule", " queue", " ticks", " zone", " last", " next", " state", ...(MAY_ACT ? [" actions"] : [])], list.map(s => [
    s.name, link(s.queue, {queue: s.queue}), ticks(s), s.tz, s.last ? dated(new Date(s.last)) : "-", s.next_in === null ? "-" : ahead(Math.max(0, s.next_in)),
    s.late > LATE && !s.paused ? element("span", {class: "bad"}, state(s)) : state(s),
    ...(MAY_ACT ? [acts(s)] : [])])));
}
