// Charts of the last minutes or the last hour. A sample is {at, ...totals}, in seconds of this page's clock.
const samples = [];
let span = 300, cursor = null;
const HOUR = 3600, FINE = 300, COARSE = 9;
const seconds = () => performance.now() / 1000;
function remember(sample) {
  samples.push(sample);
  while (samples[0].at < sample.at - HOUR) samples.shift();
  // what is older than the last minutes is kept in tens of seconds
  for (let i = 1; i < samples.length - 1 && samples[i].at < sample.at - FINE; i++) {
    while (i < samples.length - 1 && samples[i].at - samples[i - 1].at < COARSE && samples[i].at < sample.at - FINE) samples.splice(i, 1);
  }
}
// What processors remember of the time before the first sample.
function recall(past) {
  const now = seconds(), known = past.samples.map(({ago, ...totals}) => ({at: now - ago, ...totals}));
  const first = known.length ? known[0].at : now, before = [];
  for (const {minutes} of past.processors) minutes.forEach((minute, i) => {
    const at = now - 60 * (minutes.length - i - 1), kept = before.find(one => Math.abs(one.at - at) < 1);
    if (at > first - 30) return;
    if (!kept) before.push({at, ended_per_second: minute.ended_per_second, p99: minute.p99});
    else { kept.ended_per_second += minute.ended_per_second; kept.p99 = Math.max(kept.p99, minute.p99); }
  });
  samples.unshift(...before.sort((one, other) => one.at - other.at), ...known);
}
const LEAST = 1e-4;
const LINEAR = {least: 0, height: n => n, say: rate, ticks: (top, least) => {
  const rough = top / 3, power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max([1, 2, 5, 10].find(n => n * power >= rough) * power, least);
  return Array.from({length: Math.floor(top / step) + 1}, (_, i) => [i * step, count(+(i * step).toPrecision(6))]);
}};
// What is less than a tenth of a millisecond is at the bottom.
const LOGARITHMIC = {least: LEAST * 100, height: n => Math.log10(Math.max(n, LEAST) / LEAST), say: spoken, ticks: top => {
  const decades = Array.from({length: Math.floor(Math.log10(top / LEAST) + 1e-9) + 1}, (_, i) => i);
  const every = Math.ceil(decades.length / 5);
  return decades.filter(i => i % every === 0).map(i => {
    const n = +(LEAST * 10 ** i).toPrecision(1);
    return [n, n < 1 ? `${+(n * 1000).toPrecision(1)} ms` : `${count(n)} s`];
  });
}};
const WHOLE = {...LINEAR, say: count, step: 1};
// Each line has a letter, which is its colour, and a name; the first line is large. States of families are shown if tasks
// have these states.
const LARGE = [
  ["Depth", WHOLE, {waiting: ["a", "waiting"], leased: ["b", "leased"], delayed: ["c", "delayed"],
    suspended: ["e", "suspended"], ending: ["f", "ending"], dead: ["d", "dead"]}, "waiting"],
  ["Throughput, per second", LINEAR, {put_per_second: ["a", "in"], ended_per_second: ["b", "out"]}, "ended_per_second"],
];
const SMALL = [
  ["Latency, logarithmic", LOGARITHMIC, {ping: ["a", "round trip"], mean_wait: ["b", "longest mean wait"], mean_run: ["c", "longest mean run"], p99: ["d", "processors' p99"]}],
  ["Holders", WHOLE, {held: ["a", "held"], waits: ["b", "waiting"], claimed: ["c", "claimed"]}],
];
const OF_QUEUE = [["Waiting", WHOLE, {waiting: ["a", "waiting"]}], ["Throughput, per second", LINEAR, {ended_per_second: ["b", "out"]}]];
const LEFT = 52, TOP = 8, PADDING = 24;
const shown = () => samples.filter(one => one.at >= samples[samples.length - 1].at - span);
// The chart is as wide as its place, so that its text has the size of all other text.
const widthIn = id => Math.max(240, (place(id).querySelector("figure")?.clientWidth || place(id).clientWidth / (innerWidth > 700 ? 2 : 1)) - PADDING);
function chart([title, scale, all, large], list, room) {
  const names = Object.fromEntries(Object.entries(all).filter(([name]) => !OF_FAMILIES.includes(name) || list.some(one => one[name])));
  const RIGHT = room - 4, BOTTOM = large ? 148 : 116, HEIGHT = BOTTOM + 18;
  const now = list.length ? list[list.length - 1].at : 0;
  const width = list.length ? Math.min(span, Math.max(30, now - list[0].at)) : span;
  const known = n => n !== null && n !== undefined;
  const most = Math.max(...list.flatMap(one => Object.keys(names).map(name => one[name])).filter(known), 0);
  const top = Math.max(most * 1.1, scale.least) || 1;
  const x = at => RIGHT - (now - at) * (RIGHT - LEFT) / width;
  const y = n => BOTTOM - (BOTTOM - TOP) * scale.height(n) / (scale.height(top) || 1);
  const one = cursor === null ? list[list.length - 1] : nearest(list, now - cursor);
  const points = name => list.filter(one => known(one[name])).map(one => `${x(one.at).toFixed(1)},${y(one[name]).toFixed(1)}`).join(" ");
  const area = large && list.length > 1 ? element("polygon", {class: names[large][0], points: `${x(list[0].at).toFixed(1)},${BOTTOM} ${points(large)} ${RIGHT},${BOTTOM}`}) : null;
  const svg = element("svg", {viewBox: `0 0 ${room} ${HEIGHT}`, "aria-hidden": "true"}, area,
    ...scale.ticks(top, scale.step ?? 0).flatMap(([n, label]) => [element("line", {x1: LEFT, x2: RIGHT, y1: y(n).toFixed(1), y2: y(n).toFixed(1)}),
      element("text", {x: LEFT - 5, y: (y(n) + 4).toFixed(1), "text-anchor": "end"}, label)]),
    element("text", {x: LEFT, y: HEIGHT - 4}, `${spoken(width)} ago`), element("text", {x: RIGHT, y: HEIGHT - 4, "text-anchor": "end"}, "now"),
    ...Object.entries(names).map(([name, [letter]]) => element("polyline", {class: letter, points: points(name)})),
    cursor === null || !one ? null : element("line", {class: "cursor", x1: x(one.at).toFixed(1), x2: x(one.at).toFixed(1), y1: TOP, y2: BOTTOM}));
  const legend = Object.entries(names).map(([name, [letter, label]]) => element("span", {class: letter}, `${label} ${one ? scale.say(one[name]) : "-"}`));
  const big = large ? element("p", {class: `big ${names[large][0]}`, "aria-hidden": "true"}, one ? scale.say(one[large]) : "-", element("small", {}, names[large][1])) : null;
  return element("figure", {tabindex: 0, "aria-label": `Chart: ${title}. Arrow keys read its values.`},
    element("figcaption", {}, title), big, svg, element("div", {class: "legend"}, ...legend,
      cursor === null || !one ? null : element("em", {}, `${spoken(now - one.at)} ago`)));
}
const nearest = (list, at) => list.reduce((best, one) => Math.abs(one.at - at) < Math.abs(best.at - at) ? one : best, list[0]);
function drawCharts() {
  const list = samples.length ? shown() : [];
  for (const [id, charts] of [["charts", LARGE], ["more-charts", SMALL]]) show(id, ...charts.map(one => chart(one, list, widthIn(id))));
  // of the queue in the panel, if it is one of the busiest
  const mine = list.filter(one => place("queue-charts") && one.queues && Object.hasOwn(one.queues, current.queue))
    .map(one => ({at: one.at, waiting: one.queues[current.queue][0], ended_per_second: one.queues[current.queue][1]}));
  if (mine.length > 1) show("queue-charts", ...OF_QUEUE.map(one => chart(one, mine, widthIn("queue-charts"))));
}
function point(event) {
  const svg = event.target.closest(".charts figure")?.querySelector("svg");
  if (!svg || !samples.length) return cursor === null ? undefined : (cursor = null, drawCharts());
  const list = shown(), now = list[list.length - 1].at, width = Math.min(span, Math.max(30, now - list[0].at));
  const box = svg.getBoundingClientRect(), right = box.width - 4, share = (right - event.clientX + box.left) / (right - LEFT);
  cursor = Math.min(Math.max(share, 0), 1) * width;
  return drawCharts();
}
function readByKey(event) {
  const figure = event.target.closest?.(".charts figure");
  if (!figure || !samples.length || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
  event.preventDefault();
  const list = shown(), now = list[list.length - 1].at;
  const i = list.indexOf(nearest(list, now - (cursor ?? 0)));
  const next = {ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: list.length - 1}[event.key];
  cursor = event.key === "Escape" ? null : now - list[Math.min(Math.max(next, 0), list.length - 1)].at;
  drawCharts();
  place("reading").textContent = cursor === null ? "" : `${spoken(cursor)} ago: ${[...figure.querySelectorAll(".legend span")].map(s => s.textContent).join(", ")}`;
}
