// Processes, and the keys that they hold and wait for, in layers: each waits for what stands to its right.
const MOST_KEYS = 12, MOST_OF_A_KEY = 6, NODE_WIDTH = 180, GAP = 48, ROW = 36;
// A process that waits for what it holds itself is drawn as its tasks, if these are known.
function agents(state) {
  const circles = new Set(state.deadlocks.filter(d => !d.certain).flatMap(d => d.waits.map(w => w.process)));
  const split = new Set(state.keys.flatMap(k => k.holders.map(one => one.process).filter(process => k.waiting.some(one => one.process === process))));
  return one => one.task && split.has(one.process) && !circles.has(one.process) ? `${one.process} task ${one.task}` : one.process;
}
function edgesOf(state) {
  const agent = agents(state), dead = new Set(state.deadlocks.flatMap(d => d.waits.map(w => `${agent(w)}\n${w.for}`)));
  const inCircle = new Map(state.deadlocks.flatMap(d => d.waits.map(w => [w.for, new Set(d.waits.map(agent))])));
  const named = k => `${k.kind} ${k.name}`, urgent = k => inCircle.has(named(k)) ? 1e9 : k.waits;
  const keys = state.keys.filter(k => k.held || k.waits).sort((one, other) => urgent(other) - urgent(one));
  const chosen = (list, k) => {
    const first = one => inCircle.get(named(k))?.has(agent(one)) ? 0 : 1, seen = new Set();
    return [...list].sort((one, other) => first(one) - first(other))
      .filter(one => !seen.has(agent(one)) && seen.add(agent(one))).slice(0, MOST_OF_A_KEY);
  };
  const edges = keys.slice(0, MOST_KEYS).flatMap(k => [
    ...chosen(k.waiting, k).filter(one => dead.has(`${agent(one)}\n${named(k)}`) || !k.holders.some(other => agent(other) === agent(one)))
      .map(one => ({from: "p" + agent(one), to: "k" + named(k), kind: "waits", dead: dead.has(`${agent(one)}\n${named(k)}`)})),
    ...chosen(k.holders, k).map(one => ({from: "k" + named(k), to: "p" + agent(one), kind: "held",
      dead: inCircle.get(named(k))?.has(agent(one)) || false}))]);
  return {edges, left: Math.max(0, keys.length - MOST_KEYS)};
}
function layers(edges) {
  const next = new Map(), layer = new Map(), open = new Set();
  for (const {from, to} of edges) {
    if (!next.has(from)) next.set(from, []);
    if (!next.has(to)) next.set(to, []);
    next.get(from).push(to);
  }
  // the longest way to each node; an edge that closes a circle goes back
  const order = [], closing = new Set();
  const visit = node => {
    open.add(node);
    layer.set(node, 0);
    for (const other of next.get(node)) {
      if (open.has(other)) closing.add(`${node}\n${other}`);
      else if (!layer.has(other)) visit(other);
    }
    open.delete(node);
    order.unshift(node);
  };
  const entered = new Set(edges.map(edge => edge.to));
  const nodes = [...next.keys()].sort((one, other) => entered.has(one) - entered.has(other));
  nodes.forEach(node => layer.has(node) || visit(node));
  for (const node of order) for (const other of next.get(node)) {
    if (!closing.has(`${node}\n${other}`)) layer.set(other, Math.max(layer.get(other), layer.get(node) + 1));
  }
  const columns = [], links = [];
  for (const node of order) (columns[layer.get(node)] ??= []).push(node);
  // an edge over several layers has a place in each, so that it passes between the nodes
  for (const edge of edges) {
    const way = [edge.from];
    for (let i = layer.get(edge.from) + 1; i < layer.get(edge.to); i++) {
      way.push(`-${edge.from}\n${edge.to}\n${i}`);
      columns[i].push(way[way.length - 1]);
    }
    edge.way = [...way, edge.to];
    edge.way.forEach((node, i) => i && links.push({from: edge.way[i - 1], to: node}));
  }
  // each node stands near those that lead to it
  const rank = new Map();
  columns.forEach(column => {
    const middle = node => {
      const ranks = links.filter(one => one.to === node && rank.has(one.from)).map(one => rank.get(one.from));
      return ranks.length ? ranks.reduce((sum, one) => sum + one, 0) / ranks.length : 0;
    };
    const middles = new Map(column.map(node => [node, middle(node)]));
    column.sort((one, other) => middles.get(one) - middles.get(other)).forEach((node, i) => rank.set(node, i));
  });
  return columns;
}
// The task of a process is what distinguishes it.
function labelled(node) {
  const [process, task] = node[0] === "p" ? node.slice(1).split(" task ") : [node.slice(1)];
  return task ? `${shortened(process, Math.max(4, 21 - task.length))} ${shortened(task, 16)}` : shortened(process, 26);
}
function drawGraph(state) {
  const {edges, left} = edgesOf(state);
  if (!edges.length) return showRows("graph");
  const columns = layers(edges), at = new Map();
  columns.forEach((column, i) => column.forEach((node, j) => at.set(node, [4 + i * (NODE_WIDTH + GAP), 30 + j * ROW])));
  const width = columns.length * (NODE_WIDTH + GAP) - GAP + 44, height = 40 + Math.max(...columns.map(column => column.length)) * ROW;
  const red = new Set(edges.filter(edge => edge.dead).flatMap(edge => [edge.from, edge.to]));
  const arrows = edges.flatMap(({way, kind, dead}) => {
    const [x1, y1] = at.get(way[0]), [x2, y2] = at.get(way[way.length - 1]), start = x1 + NODE_WIDTH, back = x2 <= x1;
    // one that closes a circle leaves to the right, passes above all, and comes from above
    let path = `M${start},${y1 + 12}`;
    if (back) path += ` C${start + 40},${y1 - 30} ${start},6 ${(start + x2) / 2},6 S${x2 - 30},${y2 - 20} ${x2 + 20},${y2 - 5}`;
    else way.slice(1).forEach((node, i) => {
      const [x, y] = at.get(node), from = at.get(way[i]), last = i === way.length - 2;
      path += ` C${from[0] + NODE_WIDTH + GAP / 2},${from[1] + 12} ${x - GAP / 2},${y + 12} ${last ? x - 7 : x},${y + 12}`;
      if (!last) path += ` L${x + NODE_WIDTH},${y + 12}`;
    });
    const tip = back ? `M${x2 + 22},${y2} l-9,-5 l7,-6 z` : `M${x2},${y2 + 12} l-8,-4 l0,8 z`;
    return [element("path", {class: `${kind}${dead ? " dead" : ""}`, d: path}), element("path", {class: `tip${dead ? " dead" : ""}`, d: tip})];
  });
  const boxes = [...at].filter(([node]) => node[0] !== "-").map(([node, [x, y]]) => element("g", {class: `${node[0] === "k" ? "key" : "process"}${red.has(node) ? " dead" : ""}`},
    element("title", {}, node.slice(1)), element("rect", {x, y, width: NODE_WIDTH, height: 24, rx: node[0] === "k" ? 12 : 3}),
    element("text", {x: x + 10, y: y + 16}, labelled(node))));
  const sentences = edges.map(({from, to, kind, dead}) => (kind === "waits" ? `${from.slice(1)} waits for ${to.slice(1)}` : `${from.slice(1)} is held by ${to.slice(1)}`)
    + (dead ? ", in a deadlock" : ""));
  return showRows("graph", element("svg", {viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true"}, ...arrows, ...boxes),
    element("p", {class: "empty"}, `Dashed: waits for. Solid: is held by. Red: a deadlock.${left ? ` ${count(left)} more keys are not drawn.` : ""}`),
    element("ul", {class: "unseen"}, ...sentences.map(text => element("li", {}, text))));
}
