"use strict";
// The frame: tabs, the chosen run, live updates.
(() => {
  const { h } = Board;
  const embedded = document.getElementById("snapshot");
  if (embedded) Board.snapshot = JSON.parse(embedded.textContent);

  const live = h("span", { class: "live", role: "status", "data-state": "wait" }, Board.snapshot ? `snapshot of ${Board.snapshot.made}` : "connecting");
  const nav = h("nav", { "aria-label": "views" });
  const chooser = h("span", { class: "chooser" });
  const main = h("main", { id: "main" });
  document.getElementById("board").replaceChildren(h("header", {}, h("h1", {}, "fastslow ", h("span", {}, "board")), nav, chooser, live), main);

  let update = null, turn = 0;

  const most = (view) => (view.single ? 2 : Infinity);
  const frame = (place, runs) => {
    nav.replaceChildren(...Object.entries(Board.views).map(([name, view]) =>
      h("a", { href: Board.link(name, runs.slice(0, most(view))), "aria-current": name === place.view ? "page" : null }, view.title)));
    const single = Board.views[place.view].single;
    const names = (Board.known || []).map((run) => run.name);
    if (place.view === "runs" || names.length < 2) {
      chooser.replaceChildren(place.view !== "runs" && runs.length ? h("span", { class: "quiet small" }, runs[0]) : "");
      return;
    }
    const pick = h("select", { "aria-label": "run", onchange: (event) => (location.hash = Board.link(place.view, [event.target.value, ...(single ? runs.slice(1) : [])])) },
      !single && runs.length > 1 ? h("option", { value: "" }, `${runs.length} runs`) : null, names.map((name) => h("option", { value: name }, name)));
    pick.value = !single && runs.length > 1 ? "" : runs[0];
    pick.style.maxWidth = "18rem";
    const beside = h("select", { "aria-label": "run beside it", onchange: (event) => (location.hash = Board.link(place.view, [runs[0], event.target.value].filter(Boolean))) },
      h("option", { value: "" }, "one run"), names.map((name) => h("option", { value: name }, `beside ${name}`)));
    beside.value = runs[1] || "";
    beside.style.maxWidth = "18rem";
    chooser.replaceChildren(pick, ...(most(Board.views[place.view]) === 2 ? [" ", beside] : []));
  };

  const show = async () => {
    const mine = ++turn;
    update = null;
    const fresh = h("main", { id: "main" });
    try {
      if (!Board.known) Board.known = (await Board.api("runs")).runs;
      let place = Board.place();
      if (!location.hash && Board.known.length === 1) {
        history.replaceState(null, "", Board.link("curves", [Board.known[0].name]));
        place = Board.place();
      }
      const view = Board.views[place.view];
      const names = new Set(Board.known.map((run) => run.name));
      let runs = place.runs.filter((name) => names.has(name));
      if (!runs.length && place.view !== "runs" && Board.known.length) runs = [Board.known[0].name];
      runs = runs.slice(0, most(view));
      frame(place, runs);
      document.getElementById("main").replaceWith(fresh);
      document.title = `${view.title}${runs.length && place.view !== "runs" ? " · " + runs.join(", ") : ""} · fastslow board`;
      if (place.view !== "runs" && !runs.length) {
        fresh.append(Board.empty("No run here yet", "A run appears as soon as `fastslow train` has loaded its model."));
        return;
      }
      const paired = Boolean(view.single) && runs.length > 1; // toggle takes undefined for no argument
      fresh.classList.toggle("pair", paired);
      const columns = paired ? runs.map((run) => h("section", {})) : [fresh];
      if (paired) fresh.append(...columns.map((column, index) => h("div", { "data-run": runs[index] }, h("h2", { class: "beside" }, runs[index]), column)));
      const made = await Promise.all(columns.map((column, index) => view.show(column, paired ? [runs[index]] : runs, Board.column(index, view.own || []))));
      if (mine === turn) update = () => Promise.all(made.map((each) => each()));
    } catch (error) {
      document.getElementById("main").replaceWith(fresh);
      fresh.append(h("p", { class: "note bad", role: "alert" }, `This view could not be shown: ${error.message}`));
    }
  };

  const renew = async () => {
    const mine = turn;
    try {
      if (update) await update();
      else await show();
    } catch (error) {
      if (mine === turn) console.warn(`an update failed and is tried again with the next change: ${error.message}`);
    }
  };

  // Changes come in bursts: one update at a time, and one more if something changed meanwhile.
  let busy = false, again = false;
  const changed = async () => {
    if (busy) { again = true; return; }
    busy = true;
    await renew();
    busy = false;
    if (again) { again = false; setTimeout(changed, 200); }
  };

  addEventListener("hashchange", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();

  if (!Board.snapshot) {
    const source = new EventSource("api/events");
    let lost = false;
    source.addEventListener("hello", () => {
      live.dataset.state = "live";
      live.textContent = "live";
      if (lost) changed();
      lost = false;
    });
    source.addEventListener("change", (event) => {
      const parts = JSON.parse(event.data);
      const place = Board.place();
      const shown = place.view === "runs" || !Board.known || !Board.known.length ? Object.keys(parts) : place.runs.length ? place.runs : [Board.known[0].name];
      if (Object.keys(parts).some((name) => !(Board.known || []).some((run) => run.name === name))) Board.known = null;
      if (Board.known === null || shown.some((name) => (parts[name] || []).some((part) => part === "run" || Board.views[place.view].parts.includes(part)))) changed();
    });
    source.addEventListener("error", () => {
      lost = true;
      live.dataset.state = "lost";
      live.textContent = "connection lost, trying again";
    });
  }
})();
