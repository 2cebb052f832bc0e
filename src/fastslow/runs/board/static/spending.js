"use strict";
// Spending: the ledger, by purpose.
(() => {
  const { h, count } = Board;
  const UNITS = { rollouts: "rollouts", tokens: "tokens", seconds: "seconds", cost: "cost" };
  const ORDER = ["slow", "fast", "rescore", "fast-minibatch", "fast-score", "evaluation", "reflection", "preflight"];
  const WORDS = { slow: "slow loop", fast: "fast loop", rescore: "re-scoring", "fast-minibatch": "minibatches", "fast-score": "anchors", evaluation: "evaluation", reflection: "reflection", preflight: "before step 1" };
  const ordered = (names) => ORDER.filter((name) => names.includes(name)).concat(names.filter((name) => !ORDER.includes(name)));
  const colour = (name) => Board.style({ slow: 0, rescore: 4, "fast-minibatch": 1, "fast-score": 3, fast: 1, evaluation: 6, reflection: 2 }[name] ?? 5);

  function totals(data) {
    const names = ordered(Object.keys(data.totals));
    const cells = (entry) => [count(entry.rollouts), count(entry.reused), count(entry.calls), count(entry.prompt_tokens), count(entry.completion_tokens), Board.duration(entry.seconds), `$${entry.cost.toFixed(4)}`];
    const sum = (kept) => kept.reduce((total, name) => {
      for (const key of ["rollouts", "reused", "calls", "prompt_tokens", "completion_tokens", "seconds", "cost"]) total[key] = (total[key] || 0) + data.totals[name][key];
      return total;
    }, {});
    const heads = ["purpose", "rollouts", "reused", "calls", "prompt tokens", "completion tokens", "time", "cost", "faults"];
    const faults = (entry) => Object.entries(entry.faults || {}).map(([name, number]) => `${count(number)} ${name}`).join(", ") || "–";
    const row = (label, entry, bold) => h("tr", { style: bold ? { fontWeight: "650" } : null }, h("td", {}, label), cells(entry).map((cell) => h("td", { class: "num" }, cell)), h("td", {}, faults(entry)));
    return h("div", { class: "scroll" }, h("table", { class: "spend" },
      h("thead", {}, h("tr", {}, heads.map((name, index) => h("th", { class: index && index < 8 ? "num" : null, scope: "col" }, name)))),
      h("tbody", {}, names.map((name) => row(h("span", {}, h("span", { class: "key", style: { background: colour(name).stroke } }), WORDS[name] || name), data.totals[name])),
        row("training", sum(names.filter((name) => !["evaluation", "preflight"].includes(name))), true), row("all", sum(names), true))));
  }

  function byCycle(data) {
    const names = ordered([...new Set(data.cycles.flatMap((each) => Object.keys(each.rollouts)))]).filter((name) => name !== "reflection");
    return h("section", { class: "block" }, h("h2", {}, "Rollouts by cycle"), h("div", { class: "scroll" }, h("table", { class: "spend" },
      h("thead", {}, h("tr", {}, h("th", { class: "num" }, "cycle"), names.map((name) => h("th", { class: "num" }, WORDS[name] || name)), h("th", { class: "num" }, "time"), h("th", { class: "num" }, "cost"))),
      h("tbody", {}, data.cycles.slice(-200).map((each) => h("tr", {}, h("td", { class: "num" }, String(each.cycle ?? "–")), names.map((name) => h("td", { class: "num" }, count(each.rollouts[name] || 0))), h("td", { class: "num" }, Board.duration(each.seconds)), h("td", { class: "num" }, `$${each.cost.toFixed(4)}`)))))));
  }

  Board.views.spending = {
    title: "Spending",
    parts: ["ledger", "metrics"],
    single: true,
    async show(main, [run], at) {
      const frame = main.closest("main");  // main itself, unless two runs are side by side
      let unit = UNITS[at.get("unit")] ? at.get("unit") : "rollouts", data = null, card = null;
      const head = h("div"), area = h("div"), tables = h("div");
      const bar = h("div", { class: "bar" }, Board.segments("unit", UNITS, unit, (value) => { at.remember({ unit: value }); frame.dispatchEvent(new Event("unit")); }));
      frame.addEventListener("unit", () => { unit = at.get("unit"); if (card) draw(true); });
      if (at.first) frame.prepend(bar);
      main.append(head, area, tables);
      const options = () => {
        const amounts = data.amounts[unit] || {};
        return { title: `${unit[0].toUpperCase()}${unit.slice(1)} by purpose`, words: "So far, stacked.", wide: true, stacked: true, x: "step", missing: unit === "cost" ? "Nothing was paid: reflection ran without a priced model." : `This run folder does not say ${unit} by step.`,
          lines: ordered(Object.keys(amounts)).map((name) => ({ label: WORDS[name] || name, xs: data.steps, ys: amounts[name], ...colour(name) })) };
      };
      const draw = (fresh) => {
        if (fresh || !card) { card = Board.chart(options()); area.replaceChildren(card); } else card.update(options());
        tables.replaceChildren(h("section", { class: "block" }, h("h2", {}, "In total"), Object.keys(data.totals).length ? totals(data) : Board.empty("No totals yet", "ledger.json is written with the first checkpoint.")), data.cycles.length ? byCycle(data) : "");
      };
      const update = async (fresh) => {
        data = await Board.api("spending", { run });
        head.replaceChildren(...Board.notes(data.told).filter(Boolean));
        if (!data.steps.length && !Object.keys(data.totals).length) {
          area.replaceChildren(Board.empty("Nothing was spent yet", "The first row of ledger.jsonl is written after the first evaluation or step."));
          tables.replaceChildren();
          card = null;
          return;
        }
        draw(fresh);
      };
      await update(true);
      return () => update(false);
    },
  };
})();
