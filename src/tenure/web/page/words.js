// How numbers, times and names are written.
const count = n => n === null || n === undefined ? "-" : n.toLocaleString("en");
const rate = n => n === null || n === undefined ? "-" : n >= 10 || n === 0 ? count(Math.round(n)) : n.toPrecision(2);
function spoken(s) {
  if (s === null || s === undefined) return "-";
  if (s === 0) return "0 s";
  if (s < 0.1) return (s * 1000).toPrecision(2) + " ms";
  if (s < 100) return s.toPrecision(3) + " s";
  if (s < 6000) return Math.round(s / 60) + " min";
  return s < 360000 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";
}
// What has no shape, or turns the text around it, is spelled; lines and tabs stay where they are laid out.
const spelled = text => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, c => `\\u{${c.codePointAt(0).toString(16)}}`);
const lines = text => text.split("\n").map(line => spelled(line.replaceAll("\t", "    "))).join("\n");
const shortened = (text, most) => [...text].length > most ? [...text].slice(0, most - 1).join("") + "\u2026" : text;
const sentence = d => `${d.certain ? "Deadlock" : "Possible deadlock"}: `
  + d.waits.map(w => `${w.process} holds ${w.holds.join(", ") || "nothing"} and waits for ${w.for}`).join("; ");
