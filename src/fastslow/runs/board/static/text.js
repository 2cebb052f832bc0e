"use strict";
// Text: what was learnt and by which edit, the lineage of all contexts, and who solves which problem.
(() => {
  const { h, score, count } = Board;

  // Where a score is what the optimizer expects, this is what was measured, as far as the file says so.
  const inRollouts = ([mean, rollouts]) => `${score(mean)} in ${count(rollouts)} rollout${rollouts === 1 ? "" : "s"}`;
  const measured = (drawn) => (!drawn ? "" : drawn[1] ? `measured ${inRollouts(drawn)}` : "not played in this cycle");

  // What was learnt ---------------------------------------------------------------------------------------------------------

  const stateOf = (line) => {
    const last = line.shares.length - 1;
    if (line.in_best[last]) return h("span", { class: "pill good" }, "in the best text");
    if (line.shares[last] > 0) return h("span", { class: "pill" }, `in ${Math.round(line.shares[last] * 100)}% of the population`);
    let end = last;
    while (end > 0 && !(line.shares[end] > 0)) end -= 1;
    return h("span", { class: "pill bad" }, `gone after cycle ${line.cycles[end]}`);
  };
  const strip = (line) => {
    const shown = line.shares.map((share, index) => [share, index]).slice(-40);
    return h("span", { class: "strip", title: "share of the population that has the line, cycle by cycle; underlined where the best text has it" },
      shown.map(([share, index]) => h("i", { class: (share ? "" : "none") + (line.in_best[index] ? " best" : ""), style: { height: `${Math.max(10, share * 100)}%` } })));
  };
  const effectCell = (effect) => {
    if (!effect || effect[0] === null) return h("td", {}, "–");
    const [mean, deviation, problems] = effect;
    const sure = Math.abs(mean) > 2 * deviation;
    return h("td", { class: "arrow", title: `posterior mean and deviation, from all rollouts with and without the line; the grader said it of ${count(problems)} problems` },
      h("span", { class: sure ? (mean > 0 ? "up" : "down") : "" }, `${mean > 0 ? "+" : "−"}${score(Math.abs(mean))}`),
      h("span", { class: "quiet" }, ` ± ${score(deviation)}, ${count(problems)} problem${problems === 1 ? "" : "s"}`));
  };
  const useCell = (use) => {
    if (!use || !use.written) return h("td", {}, "–");
    const part = (some, all) => (all ? `${count(some)} of ${count(all)}` : "–");
    const turns = use.turns.map(([turn, played, about, followed]) => `turn ${turn}: in play ${count(played)}, followed ${part(followed, about)}`);
    const missed = use.missed ? [`not loaded ${count(use.missed)} times on problems that it is about`] : [];
    return h("td", { class: "arrow", title: [...turns, ...missed].join("\n") || null },
      h("span", {}, part(use.in_play, use.written)),
      h("span", { class: use.ignored ? "down" : "quiet" }, `, followed ${part(use.followed, use.about)}`));
  };
  const ruleRow = (line, cycles, open, judged, used) =>
    h("tr", {},
      h("td", { class: "rule" }, Board.text(line.text)),
      h("td", {}, stateOf({ ...line, cycles })),
      h("td", {}, line.seed ? h("span", { class: "quiet" }, "seed text") : `cycle ${line.cycle}, step ${line.step}`),
      h("td", {}, line.child ? h("button", { class: "plain mono", onclick: () => open(line.child) }, line.child) : "–"),
      used ? useCell(line.use) : null,
      judged ? effectCell(line.effect) : h("td", {}, line.child ? Board.arrow(...line.anchors) : "–"),
      h("td", {}, line.child ? Board.arrow(...line.validation) : "–"),
      h("td", { class: "num" }, line.child ? count(line.spent) : "–"),
      h("td", {}, strip(line)));

  const rulesTable = (rules, open, id) => {
    let all = false;
    const learnt = rules.lines.filter((line) => !line.seed);
    const shown = () => (all ? rules.lines : [...learnt].sort((a, b) => weight(b) - weight(a) || a.cycle - b.cycle).slice(0, 12));
    const weight = (line) => (line.in_best[line.in_best.length - 1] ? 2 : line.shares[line.shares.length - 1] > 0 ? 1 : 0);
    const judged = rules.lines.some((line) => line.effect);
    const used = rules.lines.some((line) => line.use);
    const heads = ["line of the text", "now", "learnt", "by the edit", ...(used ? ["in play, followed"] : []), judged ? "what it brings" : rules.expected ? "expected score" : "on the anchors", "validation around it", "rollouts of the cycle", "by cycle"];
    const body = h("tbody");
    const more = h("button", { class: "plain", onclick: () => { all = !all; draw(); } });
    const draw = () => {
      body.replaceChildren(...shown().map((line) => ruleRow(line, rules.cycles, open, judged, used)));
      more.textContent = all ? "show what is alive first" : `show all ${rules.lines.length} lines`;
    };
    draw();
    return h("section", { class: "block", id, style: { marginTop: 0 } },
      h("h2", {}, "What was learnt"),
      h("p", {}, `Each line that reached the population: the cycle and the edit that brought it, ${judged ? "what it brings on the problems it is about" : `the ${rules.expected ? "expected " : ""}score of parent and child ${rules.expected ? "over" : "on"} the anchors under the same weights`}, the validation reward before and after that cycle, and what the fast loop spent in it.`,
        used ? " In play: rollouts in which a line of the best text stood in front of a question, of those under a text that has it; followed: of those on problems of which the grader had said it before, how often it did not say it again." : ""),
      rules.ignored ? h("p", { class: "small" }, Board.shown(rules.ignored)) : null,
      learnt.length
        ? [h("div", { class: "scroll" }, h("table", { class: "rules" }, h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col", class: name.startsWith("rollouts") ? "num" : null }, name)))), body)), rules.lines.length > 12 || all ? more : null]
        : Board.empty("No line has been learnt yet", "So far every population holds the seed text alone. Rejected proposals are listed with the context they came from, below."));
  };

  // The tree ----------------------------------------------------------------------------------------------------------------

  function treeOf(nodes, all) {
    const known = new Map(nodes.map((node) => [node.id, node]));
    const keep = new Set();
    for (const node of nodes) {
      if (all || node.alive || node.best) {
        let at = node;
        while (at && !keep.has(at.id)) {
          keep.add(at.id);
          at = known.get(at.parents.find((parent) => known.has(parent)));
        }
      }
    }
    const children = new Map();
    const roots = [];
    for (const node of nodes) {
      if (!keep.has(node.id)) continue;
      const parent = node.parents.find((id) => keep.has(id) && id !== node.id);
      parent ? children.set(parent, [...(children.get(parent) || []), node]) : roots.push(node);
    }
    return { children, roots: roots.length ? roots : nodes.slice(0, 1) };
  }

  const nodeButton = (node, selected, open) =>
    h("button", { "aria-current": node.id === selected ? "true" : null, "data-node": node.id, onclick: () => open(node.id) },
      h("span", { class: "score" + (node.accepted ? "" : " rejected"), title: !node.accepted ? "rejected" : node.expected ? "expected score over the anchors" : "mean score on the anchors" }, node.score === null ? (node.accepted ? "–" : "✕") : score(node.score)),
      h("span", { class: "what" },
        h("span", { class: "line", dir: "auto" }, (node.added ? "+ " : node.removed ? "− " : "") + Board.line(node.summary || "(empty)")),
        h("span", { class: "meta" },
          h("span", { class: "mono" }, node.id),
          node.born === null ? h("span", {}, "seed text") : h("span", {}, `cycle ${node.born}`),
          node.added || node.removed ? h("span", {}, `+${node.added} −${node.removed} line${node.added + node.removed === 1 ? "" : "s"}`) : null,
          node.best ? h("span", { class: "pill good" }, "best now") : node.alive ? h("span", { class: "pill" }, "in the population") : null,
          node.expected ? h("span", {}, ["expected", measured(node.drawn)].filter(Boolean).join(", ")) : null,
          node.accepted ? null : h("span", {}, "rejected"))));

  function drawTree(list, tree, selected, open) {
    // Without recursion: a line of descent can be hundreds of contexts long; deep ones are not indented further.
    list.replaceChildren();
    const waiting = tree.roots.map((node) => [node, list, 0]).reverse();
    const drawn = new Set();
    while (waiting.length) {
      const [node, above, depth] = waiting.pop();
      if (drawn.has(node.id)) continue;
      drawn.add(node.id);
      const item = h("li", {}, nodeButton(node, selected, open));
      above.append(item);
      const below = tree.children.get(node.id) || [];
      if (!below.length) continue;
      const inner = depth < 7 ? h("ul") : above;
      if (depth < 7) item.append(inner);
      for (const child of [...below].reverse()) waiting.push([child, inner, depth + 1]);
    }
  }

  // One context ---------------------------------------------------------------------------------------------------------------

  const editBlock = (edit, run) => [
    h("h3", { class: "sub" }, `The edit of cycle ${edit.cycle}`),
    h("div", { class: "facts" },
      edit.after !== null ? h("span", {}, "on the minibatch ", Board.arrow(edit.before, edit.after)) : null,
      edit.score !== null && edit.score !== undefined ? h("span", {}, edit.expected ? "expected score over all anchors " : "on all anchors ", Board.arrow(edit.parent_score, edit.score)) : null,
      h("span", {}, "component ", h("b", {}, edit.component)),
      h("span", {}, "the cycle's fast loop spent ", h("b", {}, count(edit.rollouts)), " rollouts")),
    edit.reason ? h("p", { class: "small" }, edit.accepted ? "" : "Rejected: ", Board.shown(edit.reason)) : null,
    edit.minibatch.length
      ? h("div", { class: "scroll" }, h("table", { class: "small" }, h("caption", {}, "minibatch"),
          h("thead", {}, h("tr", {}, h("th", {}, "problem"), h("th", {}, "parent → child"))),
          h("tbody", {}, edit.minibatch.map((row) => h("tr", {},
            h("td", {}, h("a", { class: "mono", href: Board.link("rollouts", [run], { problem: row.example, purpose: "fast-minibatch" }) }, Board.tail(String(row.example), 44))),
            h("td", {}, Board.arrow(row.before, row.after)))))))
      : edit.expected && edit.after === null ? h("p", { class: "quiet small" }, "Not tried on a minibatch: these are the lines that all rollouts so far speak for.")
      : h("p", { class: "quiet small" }, "The minibatch was not recorded: this run was made by an earlier version or by an optimizer without minibatches."),
    edit.feedback.length
      ? [h("h4", { class: "sub" }, `The feedback that led to it (${edit.feedback.length})`), edit.feedback.slice(0, 12).map((text) => h("div", { class: "turn grader" }, Board.text(text)))]
      : h("p", { class: "quiet small" }, "No feedback was kept with this edit."),
  ];

  const proposalBlock = (proposal, open) =>
    h("details", {},
      h("summary", {},
        proposal.accepted ? h("span", { class: "pill good" }, "✓ accepted") : h("span", { class: "pill bad" }, "✕ rejected"), ` cycle ${proposal.cycle} `,
        proposal.after !== null && proposal.after !== undefined ? Board.arrow(proposal.before, proposal.after) : "",
        proposal.reason ? h("span", { class: "quiet" }, " ", Board.shown(proposal.reason, 300)) : null),
      h("div", { style: { margin: ".4rem 0 .8rem" } }, Board.difference(proposal.difference.filter((part) => part.lines.some(([kind]) => kind !== "same"))),
        proposal.id ? h("button", { class: "plain mono", onclick: () => open(proposal.id) }, proposal.id) : null));

  // Against any other context, of this run or another; the address keeps which.
  function comparison(node, run, at) {
    const shown = h("div"), names = Board.known.map((each) => each.name);
    let other = at.get("other") || Board.place().runs.find((each) => each !== run) || run, turn = 0;
    const runs = h("select", { "aria-label": "run of the other context", onchange: () => { other = runs.value; offer(""); } }, names.map((name) => h("option", { value: name }, name)));
    const contexts = h("select", { "aria-label": "other context", onchange: () => draw(contexts.value) });
    runs.value = other;
    const draw = async (against) => {
      const mine = ++turn;
      at.remember({ other, against });
      const parts = await Board.api("difference", { run, id: node.id, other, against }).then((answer) => Board.difference(answer.difference), (error) => [h("p", { class: "note", role: "alert" }, error.message)]);
      if (mine === turn) shown.replaceChildren(...parts.flat(Infinity).filter(Boolean));
    };
    const offer = async (against) => {
      contexts.replaceChildren();
      const asked = other, { nodes } = await Board.api("text", { run: asked });
      if (asked !== other) return;
      contexts.replaceChildren(...nodes.map((each) => h("option", { value: each.id }, `${each.id}${each.best ? ", best now" : ""}: ${Board.line(each.summary.slice(0, 60))}`)));
      contexts.value = against || (nodes.find((each) => each.best && each.id !== node.id) || nodes[0] || { id: "" }).id;
      await draw(against || contexts.value);
    };
    offer(at.get("against")).catch((error) => shown.replaceChildren(h("p", { class: "note", role: "alert" }, error.message)));
    return h("div", { class: "against" }, h("div", { class: "bar" }, names.length > 1 ? runs : null, contexts), shown);
  }

  function scoresTable(history) {
    const expected = history.some((row) => row.expected);
    const num = (...words) => h("td", { class: "num" }, words);
    const heads = ["cycle", "policy step", ...(expected ? ["expected score", "anchors", "measured"] : ["mean score", "problems"]), "best on", ""];
    return h("div", { class: "scroll" }, h("table", { class: "small", style: { marginTop: "1rem" } }, h("caption", {}, "scores"),
      h("thead", {}, h("tr", {}, heads.map((name) => h("th", { class: name ? "num" : null }, name)))),
      h("tbody", {}, history.map((row) => h("tr", {}, num(String(row.cycle)), num(count(row.step)), num(score(row.score)), num(count(row.problems)),
        expected ? num(!row.drawn ? "–" : row.drawn[1] ? inRollouts(row.drawn) : "not played") : null, num(row.wins === null ? "–" : count(row.wins)),
        h("td", {}, row.front ? h("span", { class: "pill" }, "Pareto front") : null, row.kept ? null : h("span", { class: "pill bad" }, "dropped")))))),
      expected ? h("p", { class: "quiet small" }, "The optimizer expects this score over so many anchors, from what all rollouts so far say of the lines; measured: the mean score of the rollouts that the cycle saw under this text.") : null);
  }

  function contextPanel(node, run, open, at) {
    const whole = h("div", { hidden: true }, Object.entries(node.texts).map(([name, text]) => [h("h4", { class: "quiet sub" }, name), h("pre", { dir: "auto" }, Board.shown(text))]));
    const diff = h("div", {}, Board.difference(node.difference)), other = h("div");
    const choose = (value) => {
      diff.hidden = value !== "diff";
      whole.hidden = value !== "text";
      if (value !== "other") at.remember({ other: "", against: "" });
      other.replaceChildren(value === "other" ? comparison(node, run, at) : "");
    };
    const ways = { diff: node.parents.length ? "difference from its parent" : "text", ...(node.parents.length ? { text: "text" } : {}), ...(Board.snapshot ? {} : { other: "difference from another" }) };
    const first = ways.other && at.get("against") ? "other" : "diff";
    const pick = Object.keys(ways).length > 1 ? Board.segments("text or difference", ways, first, choose) : null;
    choose(first);
    const rejected = node.proposals.filter((each) => !each.accepted).length;
    return [
      h("h2", {}, "Context ", h("span", { class: "mono" }, node.id)),
      h("p", { class: "quiet small", style: { margin: ".1rem 0 .6rem" } },
        node.parents.length ? ["proposed in cycle ", String(node.born), ", from ", node.parents.map((parent, index) => [index ? " and " : "", h("button", { class: "plain mono", onclick: () => open(parent) }, parent)])] : "the seed text, which the run started with"),
      pick, h("div", { style: { marginTop: ".5rem" } }, diff, whole, other),
      node.history.length
        ? scoresTable(node.history.slice(-12))
        : h("p", { class: "quiet small" }, "It was never scored on all anchors."),
      node.edits.map((edit) => editBlock(edit, run)),
      h("h3", { class: "sub" }, `Proposals from this context (${node.proposals.length}, ${rejected} rejected)`),
      node.proposals.length ? node.proposals.slice(0, 60).map((each) => proposalBlock(each, open)) : h("p", { class: "quiet small" }, "None so far."),
    ];
  }

  // Who solves what -------------------------------------------------------------------------------------------------------------

  // Expected scores are grey: blue is for what was solved.
  const shade = (value, expected) =>
    value === null ? "none" : value <= 0 ? "var(--sunk)" : expected ? `color-mix(in srgb, var(--quiet) ${Math.round(Math.min(1, value) * 60)}%, var(--page))` : `color-mix(in srgb, var(--rl) ${Math.round(25 + Math.min(1, value) * 75)}%, var(--page))`;

  function matrixTable(matrix, run, open) {
    const rows = matrix.rows.map((row) =>
      h("tr", { class: row.kept ? null : "dropped" },
        h("th", { scope: "row" }, h("button", { class: "plain mono", onclick: () => open(row.id) }, row.id), ` ${score(row.score)} `, row.drawn ? h("span", { class: "quiet small" }, `${measured(row.drawn)} `) : null, row.best ? h("span", { class: "pill good" }, "best") : row.front ? h("span", { class: "pill" }, "front") : row.kept ? null : h("span", { class: "quiet small" }, "dropped")),
        row.scores.map((value, index) => {
          const words = `${matrix.problems[index]}: ${matrix.expected ? "expected " : ""}${score(value)}${row.top[index] ? ", no other context is better" : ""}`;
          return h("td", {}, h("button", { tabindex: index ? "-1" : "0", title: words, "aria-label": words, style: { background: shade(value, matrix.expected), color: matrix.expected ? "var(--ink)" : "" }, onclick: () => (location.hash = Board.link("rollouts", [run], { problem: matrix.problems[index], context: row.id })) }, row.top[index] ? "•" : ""));
        })));
    return h("div", { class: "scroll" }, h("table", { class: "matrix" }, h("tbody", {}, rows)));
  }

  Board.views.text = {
    title: "Text",
    parts: ["contexts", "evals"],
    single: true,
    own: ["context", "other", "against", "learnt", "matrix"],
    async show(main, [run], at) {
      const summary = Board.known.find((each) => each.name === run);
      let selected = at.get("context"), all = false, cycle = null, data = null;
      const head = h("div"), learnt = h("div"), shown = h("p"), list = h("ul", { class: "tree" }), panel = h("div", { class: "sticky", id: at.own("context"), tabindex: "-1" });
      const solves = h("section", { class: "block", id: at.own("matrix") });
      const cycles = h("section", { class: "block" });
      const showAll = h("label", { class: "small quiet" }, h("input", { type: "checkbox", onchange: (event) => { all = event.target.checked; redraw(); } }), " also rejected and dropped ones");
      const open = async (id) => {
        selected = id;
        at.remember({ context: id });
        redraw();
        const node = await Board.api("context", { run, id });
        panel.replaceChildren(...contextPanel(node, run, open, at).flat(Infinity).filter(Boolean));
        if (matchMedia("(max-width: 1100px)").matches && opened) panel.scrollIntoView({ block: "start" });
        opened = true;
      };
      let opened = false;
      const redraw = () => drawTree(list, treeOf(data.nodes, all), selected, open);
      const drawMatrix = async () => {
        const matrix = await Board.api("matrix", cycle === null ? { run } : { run, cycle });
        const choose = h("select", { "aria-label": "cycle", onchange: (event) => { cycle = Number(event.target.value); drawMatrix(); } }, data.cycles.map((each) => h("option", { value: String(each.cycle) }, `cycle ${each.cycle}`)));
        choose.value = String(matrix.cycle);
        solves.replaceChildren(
          h("h2", {}, matrix.expected ? "Expected scores by problem " : "Who solves what ", choose),
          h("p", {}, matrix.expected
            ? `Contexts by problems, ${count(matrix.problems.length)} anchors, under the policy of step ${matrix.step}. The shade is the score that the optimizer expects, not a measurement: the darker, the higher${matrix.rows.some((row) => row.drawn) ? "; what was measured stands beside each context" : ""}. A dot marks a problem on which this context is expected to beat another and none to beat it. Problems are ordered from high to low expected scores.`
            : `Contexts by problems, ${count(matrix.problems.length)} anchors, scored by the policy of step ${matrix.step}. The darker, the higher the score; a dot marks a problem on which this context beats another and none is better: the dots make the Pareto front. Problems are ordered from easy to hard.`),
          matrix.problems.length ? matrixTable(matrix, run, open) : Board.empty("No scores by problem", "This cycle's file holds no scores."));
      };
      const drawCycles = () => cycles.replaceChildren(
        h("h2", {}, "Cycles"),
        h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["cycle", "policy step", "contexts", "best", data.rules.expected ? "its expected score" : "its score", "edits accepted", "rejected unplayed", "rollouts"].map((name, index) => h("th", { class: index === 3 ? null : "num" }, name)))),
          h("tbody", {}, data.cycles.map((each) => h("tr", {}, h("td", { class: "num" }, String(each.cycle)), h("td", { class: "num" }, count(each.step)), h("td", { class: "num" }, String(each.population.length)), h("td", {}, h("button", { class: "plain mono", onclick: () => open(each.best) }, each.best)), h("td", { class: "num" }, score(each.score), each.drawn ? h("span", { class: "quiet small" }, ` ${measured(each.drawn)}`) : null), h("td", { class: "num" }, `${each.accepted} of ${each.edits}`), h("td", { class: "num" }, count(each.rejected)), h("td", { class: "num" }, count(each.rollouts))))))));
      const update = async () => {
        data = await Board.api("text", { run });
        head.replaceChildren(...Board.notes(data.told).filter(Boolean));
        if (!data.nodes.length) {
          learnt.replaceChildren();
          main.replaceChildren(head, Board.empty("No text yet", summary.method === "rl" ? "RL only trains the weights under the seed text; this run folder does not hold it." : "The first cycle of the fast loop has not finished. Its contexts appear here as soon as it has."));
          return;
        }
        shown.textContent = `Every context below its parent, with its last ${data.rules.expected ? `expected score over the anchors${data.nodes.some((node) => node.drawn) ? ", what its rollouts measured in that cycle," : ""}` : "mean score on the anchors"} and the first line it changed.`;
        if (!list.isConnected) main.replaceChildren(head, learnt, h("section", { class: "block" }, h("h2", {}, "Lineage"), shown, h("div", { class: "split" }, h("div", {}, showAll, list), panel)), solves, cycles);
        const best = data.nodes.find((node) => node.best) || data.nodes[0];
        if (!data.nodes.some((node) => node.id === selected)) selected = best.id;
        if (data.cycles.length) {
          learnt.replaceChildren(rulesTable(data.rules, open, at.own("learnt")));
          drawCycles();
          await drawMatrix();
        } else learnt.replaceChildren(Board.empty(summary.method === "rl" ? "RL only: the text does not change" : "No cycle has finished yet", "Every rollout so far used the seed text below."));
        await open(selected);
      };
      await update();
      return update;
    },
  };
})();
