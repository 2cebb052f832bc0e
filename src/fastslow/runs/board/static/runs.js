"use strict";
// Runs: one row each; choose several to overlay their curves.
(() => {
  const { h, count, score } = Board;
  const STATUS = {
    finished: ["good", "✓", "finished"], running: ["", "●", "running"], failed: ["bad", "✕", "failed"],
    interrupted: ["warn", "‖", "interrupted"], stopped: ["bad", "■", "stopped"], silent: ["warn", "?", "silent"], unknown: ["warn", "?", "unknown"],
  };
  const METHODS = { fst: "FST", rl: "RL only", gepa: "GEPA only", distill: "FST-distill" };

  Board.status = (run) => {
    const [kind, sign, words] = STATUS[run.status] || STATUS.unknown;
    const title = run.status === "silent" ? "says that it is running, but has written nothing for ten minutes" : run.error || null;
    return h("span", { class: `pill ${kind}`, title }, sign, words);
  };
  Board.method = (run) => {
    const name = METHODS[run.method] || run.method || "–";
    const other = run.method !== "rl" && run.optimizer && run.optimizer !== "gepa" ? ` (${run.optimizer})` : "";
    return h("span", {}, h("span", { class: "key", style: { background: METHODS[run.method] ? `var(--${run.method})` : "var(--line-strong)" } }), name + other);
  };

  // Every word of the filter is in a run's name, tags, status, method, optimizer, model or task.
  const passes = (run, words) => {
    const said = [run.name, ...run.tags, run.status, METHODS[run.method], run.method, run.optimizer, run.model, run.task].join(" ").toLowerCase();
    return words.toLowerCase().split(/\s+/).every((word) => said.includes(word));
  };

  const row = (run, chosen, choose, only) => {
    const share = run.budget ? run.rollouts / run.budget : run.steps ? run.step / run.steps : null;
    const validation = run.validation;
    return h("tr", { "data-run": run.name },
      h("td", {}, h("input", { type: "checkbox", "aria-label": `choose ${run.name}`, checked: chosen.has(run.name), onchange: (event) => choose(run.name, event.target.checked) })),
      h("td", { class: "wide" }, h("a", { class: "runname", href: Board.link("curves", [run.name]) }, run.name),
        run.tags.map((tag) => [" ", h("button", { class: "pill", title: "filter by this tag", onclick: () => only(tag) }, Board.line(tag))]),
        Object.keys(run.notes).length ? h("span", { class: "pill warn", title: Object.entries(run.notes).map(([file, told]) => `${file}: ${told}`).join("\n") }, "damaged") : null),
      h("td", {}, Board.status(run)),
      h("td", {}, Board.method(run)),
      h("td", { class: "off" }, run.model || "–"),
      h("td", { class: "off" }, run.task || "–"),
      h("td", { class: "num" }, run.steps && !run.budget ? `${count(run.step)} / ${count(run.steps)}` : count(run.step), share === null ? null : h("span", { class: "progress", "aria-hidden": "true" }, h("i", { style: { width: `${Math.min(100, share * 100)}%` } }))),
      h("td", { class: "curve" }, Board.spark(run.spark, `var(--${METHODS[run.method] ? run.method : "accent"})`)),
      h("td", { class: "num", "data-label": "training" }, score(run.reward)),
      h("td", { class: "num wide", "data-label": "validation" }, validation ? [score(validation.mean), h("span", { class: "quiet small" }, ` [${score(validation.low)}, ${score(validation.high)}]`)] : "–"),
      h("td", { class: "num off" }, count(run.rollouts)),
      h("td", { class: "quiet small off" }, Board.ago(run.written)));
  };

  Board.views.runs = {
    title: "Runs",
    parts: ["run", "metrics", "evals", "ledger", "tags"],
    async show(main) {
      const chosen = new Set(Board.place().runs);
      const told = h("p", { class: "quiet", role: "status", style: { margin: 0, flex: "1 1 14rem" } }), overlay = h("span");
      const filter = h("input", { type: "text", value: Board.place().get("filter"), placeholder: "name, tag, method, task …", oninput: () => { Board.remember({ filter: filter.value }); draw(); } });
      const bar = h("div", { class: "bar" }, h("label", { class: "field" }, "filter", filter), told, overlay);
      const only = (tag) => { filter.value = tag; Board.remember({ filter: tag }); draw(); };
      const body = h("tbody");
      const heads = ["", "run", "status", "method", "model", "task", "step", "reward by step", "reward", "validation [95%]", "rollouts", "written"];
      const table = h("table", { class: "runs" },
        h("thead", {}, h("tr", {}, heads.map((name, index) => h("th", { class: [6, 8, 9, 10].includes(index) ? "num" : null, scope: "col" }, name)))), body);
      const tell = () => {
        const names = [...chosen];
        told.textContent = names.length ? `${names.length} chosen` : "Choose runs to see their curves over one another, or open one by its name.";
        overlay.replaceChildren(names.length ? h("a", { href: Board.link("curves", names) }, `Overlay ${names.length} run${names.length > 1 ? "s" : ""} →`) : "");
      };
      const choose = (name, on) => {
        on ? chosen.add(name) : chosen.delete(name);
        history.replaceState(null, "", Board.link("runs", [...chosen], { filter: filter.value }));
        tell();
      };
      const draw = () => {
        const shown = Board.known.filter((run) => passes(run, filter.value));
        body.replaceChildren(...shown.map((run) => row(run, chosen, choose, only)));
        if (!shown.length) body.append(h("tr", {}, h("td", { class: "wide quiet", colspan: "12" }, "No run passes this filter.")));
      };
      const update = async () => {
        const { runs } = await Board.api("runs");
        Board.known = runs;
        if (!runs.length) {
          main.replaceChildren(Board.empty("No run here yet", "A run appears as soon as `fastslow train` has loaded its model. The board looks for folders with a run.json, up to six folders deep."));
          return;
        }
        if (!table.isConnected) main.replaceChildren(bar, h("div", { class: "scroll" }, table));
        draw();
        tell();
      };
      await update();
      return update;
    },
  };
})();
