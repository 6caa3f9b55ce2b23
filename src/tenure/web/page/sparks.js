// A small picture of each queue: how many tasks waited, as an area, and how many ended per second, as a line.
const BUSIEST = 50, ACROSS = 120, HIGH = 24;
const busiest = queues => Object.fromEntries([...queues].sort((one, other) => business(other) - business(one)).slice(0, BUSIEST)
  .map(q => [q.name, [q.waiting, q.ended_per_second]]));
const business = q => q.waiting + q.leased + q.put_per_second + q.ended_per_second;
function spark(name, list) {
  const known = list.filter(one => one.queues && Object.hasOwn(one.queues, name));
  if (known.length < 2) return "";
  const now = list[list.length - 1].at, width = Math.min(span, Math.max(30, now - list[0].at));
  const x = at => ((1 - (now - at) / width) * ACROSS).toFixed(1);
  const line = i => {
    const top = Math.max(...known.map(one => one.queues[name][i])) || 1;
    return known.map(one => `${x(one.at)},${(HIGH - 1 - (HIGH - 3) * one.queues[name][i] / top).toFixed(1)}`).join(" ");
  };
  const most = i => Math.max(...known.map(one => one.queues[name][i]));
  const said = `up to ${count(most(0))} waiting, up to ${rate(most(1))} out per second`;
  return element("svg", {class: "spark", viewBox: `0 0 ${ACROSS} ${HIGH}`, role: "img", preserveAspectRatio: "none",
    "aria-label": said}, element("title", {}, said),
  element("polygon", {class: "a", points: `${x(known[0].at)},${HIGH} ${line(0)} ${x(known[known.length - 1].at)},${HIGH}`}), element("polyline", {class: "b", points: line(1)}));
}
