"use strict";
// What all views share: elements, numbers, foreign text, data, the address. Text of models and graders reaches the page only as
// text nodes, never as markup.
const Board = { views: {}, snapshot: null };

Board.h = (tag, props, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "checked" || name === "value") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

// Numbers ------------------------------------------------------------------------------------------------------------------

Board.score = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));
Board.count = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
Board.short = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(size >= 1e7 ? 0 : 1) + "M";
  if (size >= 1e4) return (value / 1e3).toFixed(size >= 1e5 ? 0 : 1) + "k";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (size >= 100) return value.toFixed(0);
  if (size >= 1) return value.toFixed(2);
  return size === 0 ? "0" : size >= 0.01 ? value.toFixed(3) : value.toPrecision(2);
};
Board.duration = (seconds) => {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 5400) return (seconds / 60).toFixed(seconds < 600 ? 1 : 0) + " min";
  return (seconds / 3600).toFixed(1) + " h";
};
Board.ago = (time) => {
  const seconds = Math.max(0, Date.now() / 1000 - time);
  if (seconds < 5) return "now";
  if (seconds > 48 * 3600) return new Date(time * 1000).toISOString().slice(0, 10);
  return Board.duration(Math.round(seconds)) + " ago";
};

// Foreign text -------------------------------------------------------------------------------------------------------------

// Characters that would hide, reorder or erase what a text says are named instead.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;
const HIDDEN_ALL = new RegExp(HIDDEN.source, "g");
const LONGEST = 20000;

Board.shown = (text, limit = LONGEST) => {
  const parts = document.createDocumentFragment();
  const cut = text.length > limit ? text.slice(0, limit) : text;
  let last = 0;
  for (const found of cut.matchAll(HIDDEN_ALL)) {
    parts.append(cut.slice(last, found.index));
    const code = "U+" + found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.append(Board.h("span", { class: "control", title: "a character that cannot be seen" }, code));
    last = found.index + found[0].length;
  }
  parts.append(cut.slice(last));
  if (cut.length < text.length) {
    const rest = Board.h("button", { class: "plain", onclick: () => rest.replaceWith(Board.shown(text.slice(limit), Infinity)) },
      ` … show the other ${Board.count(text.length - limit)} characters`);
    parts.append(rest);
  }
  return parts;
};
Board.line = (text) => text.replace(HIDDEN_ALL, "\ufffd");
// Ids of problems differ at their end.
Board.tail = (text, length = 18) => (text.length > length ? "…" + Board.line(text.slice(1 - length)) : Board.line(text));
Board.text = (text, props) => Board.h("div", { class: "text", dir: "auto", ...props }, Board.shown(text || ""));

const SIGNS = { new: "+", gone: "−", same: "" };
const WORDS = { new: "new: ", gone: "gone: ", same: "" };
Board.difference = (parts) =>
  parts.map((part) => [
    parts.length > 1 ? Board.h("h4", { class: "quiet sub" }, part.component) : null,
    Board.h("div", { class: "diff text" },
      part.lines.length
        ? part.lines.map(([kind, line]) =>
            Board.h("div", { class: kind, "data-sign": SIGNS[kind], dir: "auto", "aria-label": kind === "same" ? null : WORDS[kind] + line.slice(0, 200) },
              line ? Board.shown(line) : "\u00a0"))
        : Board.h("div", { class: "quiet" }, "an empty text")),
  ]);
Board.arrow = (before, after) => {
  const kind = before === null || after === null || before === undefined || after === undefined ? "" : after > before ? "up" : after < before ? "down" : "";
  return Board.h("span", { class: "arrow" }, `${Board.score(before)} → `, Board.h("span", { class: kind }, Board.score(after)));
};
Board.empty = (title, words) => Board.h("div", { class: "empty" }, Board.h("b", {}, title), words);
const ENDED = { interrupted: "was interrupted", stopped: "stopped" };
Board.notes = (told) =>
  [
    told.error
      ? Board.h("p", { class: told.status === "interrupted" ? "note" : "note bad", role: "status" },
          `This run ${ENDED[told.status] || "failed"}: `, Board.shown(told.error, 2000), told.saved ? ` (step ${Board.count(told.saved)} is saved)` : "")
      : null,
    Object.keys(told.notes).length
      ? Board.h("p", { class: "note", role: "status" }, Object.entries(told.notes).map(([file, told]) => Board.h("span", { style: { display: "block" } }, `${file}: ${told}`)))
      : null,
  ];

// Data ---------------------------------------------------------------------------------------------------------------------

Board.address = (path, params) => `api/${path}?${new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== ""))}`;
Board.api = async (path, params = {}) => {
  if (Board.snapshot) return Board.fromSnapshot(path, params);
  const answer = await fetch(Board.address(path, params));
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 300) || `the board answered ${answer.status}`);
  return answer.json();
};

// A snapshot holds the answers of the board by run; its rollouts are the newest ones, filtered here.
Board.fromSnapshot = (path, params) => {
  if (path === "runs") return { runs: Board.snapshot.runs.map((run) => run.run) };
  const run = Board.snapshot.runs.find((each) => each.run.name === params.run);
  if (!run) throw new Error("this snapshot does not hold that run");
  if (path === "matrix") return run.matrix[params.cycle === undefined ? run.matrix.length - 1 : run.matrix.findIndex((each) => each.cycle === Number(params.cycle))];
  if (path === "context") return run.contexts[params.id];
  if (path === "rollouts") return Board.filterRollouts(run.rollouts, params);
  if (path === "rollout") {
    const found = run.rollouts.find((row) => row.file === params.file && row.row === Number(params.row));
    return { ...found.full, texts: (run.contexts[found.context] || { texts: {} }).texts };
  }
  if (path === "group") {
    const rows = run.rollouts.filter((row) => row.file === params.file && row.example === params.example);
    return { rows: rows.map((row) => ({ ...row.full, row: row.row })), texts: {} };
  }
  return run[path];
};
Board.filterRollouts = (rows, asked) => {
  const number = (name) => (asked[name] === undefined || asked[name] === "" ? null : Number(asked[name]));
  const [from, to, low, high] = ["from", "to", "low", "high"].map(number);
  const plain = (text) => text.toLowerCase().split(/\s+/).filter(Boolean).join(" ");
  const words = plain(asked.words || "");
  const holds = (full) => [...full.turns.flatMap((turn) => [turn.question || "", turn.answer]), full.feedback, full.error].some((text) => plain(text).includes(words));
  const passes = (row) =>
    (!words || holds(row.full)) &&
    (from === null || row.step >= from) && (to === null || row.step <= to) && (low === null || row.score >= low) && (high === null || row.score <= high) &&
    (!asked.problem || row.example.includes(asked.problem)) && (!asked.context || row.context === asked.context) &&
    (!asked.fault || row.faults.includes(asked.fault)) && (!asked.purpose || row.purpose === asked.purpose);
  const found = rows.filter(passes);
  const key = { score: "score", tokens: "tokens", advantage: "advantage" }[asked.sort];
  if (key) found.sort((a, b) => b[key] - a[key]);
  if (asked.order === "up") found.reverse();
  const all = (name) => [...new Set(rows.map((row) => row[name]))];
  const steps = rows.map((row) => row.step);
  return {
    told: { error: "", notes: {} }, total: found.length, all: rows.length, files: 1, indexed: 1, offset: Number(asked.offset || 0),
    rows: found.slice(Number(asked.offset || 0), Number(asked.offset || 0) + Number(asked.limit || 50)),
    facets: rows.length ? { contexts: all("context"), purposes: all("purpose"), faults: [...new Set(rows.flatMap((row) => row.faults.split(", ").filter(Boolean)))], steps: [Math.min(...steps), Math.max(...steps)] } : {},
  };
};

// A text that a spreadsheet would compute gets an apostrophe before it; texts of models are nobody's formulas.
const cell = (value) => {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
Board.csv = (rows) => rows.map((row) => row.map(cell).join(",") + "\r\n").join("");

// Save a blob, or what the board answers at an address.
Board.download = (name, what) => {
  const href = typeof what === "string" ? what : URL.createObjectURL(what);
  Board.h("a", { href, download: name.replace(/[^\w.-]+/g, "_") }).click();
  if (href !== what) setTimeout(() => URL.revokeObjectURL(href), 1000);
};

// The address: #/view?run=a&run=b&… ------------------------------------------------------------------------------------------

Board.place = () => {
  const [view, query] = location.hash.replace(/^#\/?/, "").split("?");
  const asked = new URLSearchParams(query || "");
  return { view: Board.views[view] ? view : "runs", runs: asked.getAll("run"), get: (name) => asked.get(name) || "" };
};
Board.link = (view, runs, params = {}) => {
  const asked = new URLSearchParams(runs.map((run) => ["run", run]));
  for (const [name, value] of Object.entries(params)) if (value !== "" && value !== null && value !== undefined) asked.set(name, value);
  return `#/${view}${asked.size ? "?" + asked : ""}`;
};
// Change the address without a new entry in the history; the view itself shows the change.
Board.remember = (params) => {
  const place = Board.place();
  const asked = new URLSearchParams((location.hash.split("?")[1]) || "");
  for (const [name, value] of Object.entries(params)) value === "" || value === null || value === undefined ? asked.delete(name) : asked.set(name, value);
  history.replaceState(null, "", `#/${place.view}${asked.size ? "?" + asked : ""}`);
};
// One of several runs side by side: what is its own, such as the open context, has a name of its own in the address.
Board.column = (index, names) => {
  const own = (name) => (index && names.includes(name) ? `${name}${index + 1}` : name);
  return { first: index === 0, own, get: (name) => Board.place().get(own(name)), remember: (params) => Board.remember(Object.fromEntries(Object.entries(params).map(([name, value]) => [own(name), value]))) };
};
Board.segments = (label, options, chosen, choose) => {
  const buttons = Object.entries(options).map(([value, words]) =>
    Board.h("button", { type: "button", "aria-pressed": String(value === chosen), "data-value": value, onclick: () => {
      for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.value === value));
      choose(value);
    } }, words));
  return Board.h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
};
