"use strict";
// Curves: every number of a run against steps, rollouts, tokens or time; several runs on the same axes.
(() => {
  const { h } = Board;
  const AXES = { steps: "steps", rollouts: "rollouts", tokens: "tokens", seconds: "time" };
  const PHASES = ["sampling", "grading", "update", "sync", "fast", "evaluation"];
  const CHARTS = [
    ["KL from the base model", "kl", "Estimated on the rollouts of a step, nats a token; points: measured at an evaluation."],
    ["Entropy", "entropy", "Of the policy, nats a token."],
    ["Answer length", "response_length", "Mean completion tokens of a rollout.", true],
    ["Truncated", "truncated", "Share of rollouts that reached the token limit.", true],
    ["Zero variance", "zero_variance", "Share of groups whose rewards are all equal: they train nothing.", true],
    ["Gradient norm", "grad_norm", "Before clipping.", true],
  ];

  const marks = (data, axis, name) => data[name].map(([index, value]) => [data.training[axis][index], value]).filter(([x]) => x !== null);

  // Runs of several methods have the colours of their methods, and dashes where a method comes again.
  function styles(runs) {
    const methods = runs.map(({ name }) => (Board.known.find((run) => run.name === name) || {}).method);
    if (new Set(methods).size < 2) return runs.map((_, index) => Board.style(index));
    return methods.map((method, index) => {
      const before = methods.slice(0, index).filter((each) => each === method).length;
      return { stroke: Board.css(`--${method}`) || Board.colour(6), dash: Board.DASHES[before % Board.DASHES.length] || undefined };
    });
  }

  // With frozen weights no step has a row.
  const frozen = (runs) => runs.every(({ name }) => (Board.known.find((run) => run.name === name) || {}).method === "gepa");
  const ELSEWHERE = "With frozen weights only evaluations are drawn; Spending has what the fast loop spent.";

  function charts(runs, axis, smooth) {
    const several = runs.length > 1, looks = styles(runs);
    const first = runs[0].data;
    const common = {
      missing: frozen(runs) ? ELSEWHERE : null, x: AXES[axis], xFormat: axis === "seconds" ? Board.duration : Board.short,
      marks: several ? [] : marks(first, axis, "cycles"), stages: several ? [] : marks(first, axis, "stages"),
    };
    const named = (name, words) => (several ? name : words);
    const made = [];
    const reward = [];
    runs.forEach(({ name, data }, index) => {
      const look = looks[index];
      const training = data.training;
      reward.push({ label: named(name, "training"), xs: training[axis], ys: smooth ? smoothed(training.reward) : training.reward, ...(several ? { ...look, stroke: Board.faded(look.stroke, 0.45), width: 1.1 } : { stroke: Board.colour(6), width: 1.2 }) });
      const labels = Object.keys(data.evaluation);
      const shown = several ? labels.filter((label) => label === "best context" || (label === "seed" && !labels.includes("best context"))) : labels;
      shown.forEach((label, place) => {
        const found = data.evaluation[label];
        const own = several ? look : Board.style({ "best context": 1, seed: 0 }[label] ?? place + 2);
        reward.push({ label: several ? `${name}, validation` : `validation, ${label}`, xs: found[axis], ys: found.mean, low: found.low, high: found.high, points: true, ...own });
      });
    });
    made.push({ title: "Reward", words: "Training: mean over the rollouts of a step. Validation: held-out problems with 95% intervals over problems.", lines: reward, wide: true, zero: true, ...common });
    const parts = runs.flatMap(({ name, data }, index) => Object.entries(data.training.parts || {}).map(([part, ys], place) => ({ label: named(`${name}, ${part}`, part), xs: data.training[axis], ys: smooth ? smoothed(ys) : ys, ...(several ? looks[index] : Board.style(place)), ...(several && place ? { dash: [2 + 2 * place, 4] } : {}) })));
    if (parts.length) made.push({ title: "Reward functions", words: "What each gave, before weights and scaling: mean over the rollouts of a step.", lines: parts, ...common });
    for (const [title, key, words, zero] of CHARTS) {
      const lines = runs.map(({ name, data }, index) => ({ label: named(name, key === "kl" ? "in training" : title.toLowerCase()), xs: data.training[axis], ys: data.training[key], ...looks[index] }));
      if (key === "kl") runs.forEach(({ name, data }, index) => {
        const found = data.evaluation["best context"] || data.evaluation.seed;
        if (found) lines.push({ label: named(`${name}, measured`, "measured"), xs: found[axis], ys: found.kl, points: true, ...(several ? looks[index] : Board.style(1)), dash: [4, 4] });
      });
      made.push({ title, words, lines, zero, ...common, missing: "Not measured: with frozen weights there is no update." });
    }
    if (several) {
      made.push({ title: "Seconds a step", words: "All phases of a step.", zero: true, ...common, lines: runs.map(({ name, data }, index) => ({ label: name, xs: data.training[axis], ys: total(data.training.phases), ...looks[index] })) });
      made.push({ title: "Rollouts so far", words: "Of both loops, without evaluation.", zero: true, ...common, lines: runs.map(({ name, data }, index) => ({ label: name, xs: data.training[axis], ys: data.training.rollouts, ...looks[index] })) });
    } else {
      const names = PHASES.filter((name) => first.training.phases[name]).concat(Object.keys(first.training.phases).filter((name) => !PHASES.includes(name)));
      made.push({ title: "Seconds by phase", words: "Of each step; the fast loop runs before the first step of a cycle.", stacked: true, ...common, lines: names.map((name, index) => ({ label: name, xs: first.training[axis], ys: first.training.phases[name], ...Board.style(index) })) });
      made.push({ title: "Rollouts by purpose", words: "So far.", stacked: true, ...common, lines: Object.entries(first.training.purposes).map(([name, ys], index) => ({ label: name, xs: first.training[axis], ys, ...Board.style(index) })) });
    }
    return made;
  }

  const total = (phases) => Object.values(phases).reduce((sum, values) => values.map((value, index) => value + (sum[index] || 0)), []);
  const smoothed = (values) => {
    const width = Math.max(1, Math.round(values.length / 40));
    return values.map((_, index) => {
      const part = values.slice(Math.max(0, index - width), index + width + 1).filter((value) => value !== null);
      return part.length ? part.reduce((a, b) => a + b, 0) / part.length : null;
    });
  };

  // Everything that is drawn, as rows of a table: what, against what, value.
  function csv(runs, axis) {
    const rows = [["chart", "curve", axis, "value", "low", "high"]];
    for (const chart of charts(runs, axis, false))
      for (const line of chart.lines) line.xs.forEach((x, index) => rows.push([chart.title, line.label, x, line.ys[index], line.low && line.low[index], line.high && line.high[index]]));
    return Board.csv(rows);
  }

  Board.views.curves = {
    title: "Curves",
    parts: ["run", "metrics", "evals", "ledger"],
    async show(main, runs) {
      let axis = AXES[Board.place().get("x")] ? Board.place().get("x") : runs.length > 1 ? "rollouts" : "steps";
      let smooth = Board.place().get("smooth") === "1";
      const head = h("div");
      const grid = h("div", { class: "charts" });
      const bar = h("div", { class: "bar" },
        Board.segments("against", AXES, axis, (value) => { axis = value; Board.remember({ x: value }); draw(true); }),
        h("label", { class: "small" }, h("input", { type: "checkbox", checked: smooth, onchange: (event) => { smooth = event.target.checked; Board.remember({ smooth: smooth ? "1" : "" }); draw(false); } }), " smooth training reward"),
        h("button", { onclick: () => Board.download(`${runs.join("-")}.csv`, new Blob([csv(loaded, axis)], { type: "text/csv" })) }, "CSV"),
        h("span", { class: "quiet small push" }, "Hover for numbers, drag to zoom, double-click to zoom out."));
      main.append(head, bar, grid);
      let cards = [], loaded = [];
      const draw = (fresh) => {
        const wanted = charts(loaded, axis, smooth);
        if (fresh || cards.length !== wanted.length) {
          cards = wanted.map(Board.chart);
          grid.replaceChildren(...cards);
        } else wanted.forEach((options, index) => cards[index].update(options));
      };
      const update = async (fresh = false) => {
        loaded = await Promise.all(runs.map(async (name) => ({ name, data: await Board.api("curves", { run: name }) })));
        head.replaceChildren(...loaded.flatMap(({ data }) => Board.notes(data.told)).filter(Boolean));
        if (!loaded.some(({ data }) => data.training.steps.length || Object.keys(data.evaluation).length)) {
          bar.hidden = true;
          grid.replaceChildren(frozen(loaded) ? Board.empty("No evaluation yet", ELSEWHERE) : Board.empty("No step yet", "The first row of metrics.jsonl is written after the first step; before it come the model, the first evaluation and the first cycle of the fast loop."));
          cards = [];
          return;
        }
        bar.hidden = false;
        draw(fresh);
      };
      await update(true);
      return () => update(false);
    },
  };
})();
