// Elements are made anew and merged into the page, so that what has the focus keeps it.
const SVG = new Set(["svg", "polyline", "polygon", "line", "text", "rect", "path", "g", "title"]);
// Text only, never HTML: names in a store come from anybody.
function element(name, attributes, ...children) {
  const made = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== false) made.setAttribute(key, value);
  made.append(...children.flat().filter(child => child !== null)
    .map(child => typeof child === "string" ? (name === "pre" || name === "dd" ? lines(child) : spelled(child)) : child));
  return made;
}
const link = (text, where) => element("a", {href: "#" + new URLSearchParams(where)}, text);
const button = (text, action, bad, label = null) => element("button",
  {type: "button", "data-action": JSON.stringify(action), class: bad ? "bad" : null, "aria-label": label && spelled(label)}, text);
const doing = (text, what) => element("button", {type: "button", "data-do": what}, text);
// A date of this page's clock, in its zone.
const dated = date => element("time", {datetime: date.toISOString()},
  date.toLocaleString("en-GB", {weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short"}));
const ago = s => s === null ? "" : element("span", {}, `${spoken(s)} ago, `, dated(new Date(Date.now() - s * 1000)));
const ahead = s => element("span", {}, `in ${spoken(s)}, `, dated(new Date(Date.now() + s * 1000)));
const place = id => document.getElementById(id);
function merge(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return undefined;
  }
  for (const {name} of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const {name, value} of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.type === "checkbox") old.checked = fresh.checked;
  return mergeChildren(old, [...fresh.childNodes]);
}
function mergeChildren(old, fresh) {
  // what the user types in stays
  if (old.nodeName === "SELECT" || old.nodeName === "FORM") return;
  const known = [...old.childNodes];
  fresh.forEach((child, i) => known[i] ? merge(known[i], child) : old.append(child));
  known.slice(fresh.length).forEach(child => child.remove());
}
// A section without a row is hidden.
const showRows = (id, ...children) => {
  place(id).closest("section").hidden = !children.some(child => child.nodeName !== "P");
  show(id, ...children);
};
const show = (id, ...children) => mergeChildren(place(id), children);
// While somebody points at a list or has the focus there, nothing in it changes its place.
const orders = {};
function steady(id, list, name, compare) {
  const sorted = [...list].sort(compare), before = orders[id];
  if (before && place(id).matches(":hover, :focus-within")) {
    const rank = new Map(before.map((one, i) => [one, i]));
    sorted.sort((one, other) => (rank.get(name(one)) ?? Infinity) - (rank.get(name(other)) ?? Infinity) || 0);
  }
  orders[id] = sorted.map(name);
  return sorted;
}
// Columns whose name begins with a blank hold text; a figure that is bad stands in red. On a phone several figures in a
// cell take a whole line, and figures of 0 are left out.
function table(header, rows, bad = () => false) {
  const cell = (name, value) => {
    const text = value instanceof Node ? value.textContent : value;
    const nil = text === "0" || text === "-" ? "nil" : "";
    const classes = name[0] === " " ? `text ${nil}`.trim() : bad(name, text) ? "bad" : nil || ((name + text).includes(" / ") ? "whole" : null);
    return element("td", {role: "cell", class: classes, "data-label": name.trim(), title: text.length > 30 ? spelled(text) : null}, value);
  };
  if (!rows.length) return element("p", {class: "empty"}, "none");
  return element("table", {role: "table"}, element("thead", {role: "rowgroup"}, element("tr", {role: "row"}, ...header.map(
      name => element("th", {role: "columnheader", scope: "col", class: name[0] === " " ? "text" : null}, name.trim())))),
    element("tbody", {role: "rowgroup"}, ...rows.map(row => element("tr", {role: "row"}, ...row.map((value, i) => cell(header[i], value))))));
}
