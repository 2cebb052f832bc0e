"use strict";
// Rollouts: a list of any length of which only the visible part exists, and one conversation beside it.
(() => {
  const { h, score, count } = Board;
  const ROW = 28, PAGE = 50;
  const PURPOSES = { slow: "slow loop", "fast-minibatch": "minibatch", "fast-score": "anchors", rescore: "re-scoring", evaluation: "evaluation" };
  // Sequential and readable on both pages: surprise, from none to strong, as orange over the page.
  const shadeOf = (logprob) => (logprob === null ? "none" : `color-mix(in srgb, var(--fst) ${Math.round(Math.min(1, -logprob / 5) * 70)}%, transparent)`);

  // An answer as it was written, but its tool calls, which show the tool and each argument.
  function answered(text) {
    return text.split(/(<tool_call>[^]*?(?:<\/tool_call>|$))/).filter((part) => part.trim()).map((part) => {
      const call = called(part);
      return call
        ? h("div", { class: "call" }, h("b", {}, "calls ", h("span", { class: "mono" }, Board.line(call.name))),
            Object.entries(call.arguments || {}).map(([name, value]) => [h("p", { class: "quiet small" }, Board.line(name)), Board.text(typeof value === "string" ? value : JSON.stringify(value))]))
        : Board.text(part.trim());
    });
  }
  function called(part) {
    if (!part.startsWith("<tool_call>")) return null;
    try {
      const call = JSON.parse(part.replace(/<\/?tool_call>/g, ""));
      return typeof call.name === "string" && call.arguments !== null && typeof call.arguments === "object" ? call : null;
    } catch {
      return null;  // it is shown as it was written
    }
  }

  function conversation(rollout, run, ask) {
    let shaded = Board.place().get("shade") === "1";
    const possible = rollout.turns.some((turn) => turn.tokens.length);
    const turns = h("div");
    const answer = (turn) =>
      shaded && turn.tokens.length
        ? h("div", { class: "text shade", dir: "auto" }, turn.tokens.map(([text, logprob]) => h("span", { title: logprob === null ? null : `log-probability ${logprob.toFixed(3)}, probability ${Math.exp(logprob).toFixed(3)}`, style: { background: shadeOf(logprob) } }, Board.shown(text))))
        : turn.answer.trim() ? answered(turn.answer) : Board.text("(an empty answer)");
    const place = (index) => (rollout.turns.length > 1 ? `, turn ${count(index + 1)} of ${count(rollout.turns.length)}` : "");
    const draw = () => turns.replaceChildren(...rollout.turns.flatMap((turn, index) => [
      index === 0 || turn.component !== rollout.turns[index - 1].component
        ? h("div", { class: "turn" }, h("h4", {}, "context ", h("a", { class: "mono", href: Board.link("text", [run], { context: rollout.context }) }, rollout.context), turn.component ? `, ${turn.component}` : ""),
            rollout.texts && Object.keys(rollout.texts).length ? Board.text(rollout.texts[turn.component] ?? Object.values(rollout.texts).join("\n\n")) : h("p", { class: "quiet small" }, "The run folder does not hold this text."))
        : null,
      h("div", { class: "turn" }, h("h4", {}, "asked"), turn.question === null ? h("p", { class: "quiet small" }, "The question was not recorded: this run was made by an earlier version.") : Board.text(turn.question)),
      h("div", { class: "turn answer" }, h("h4", {}, "answered", place(index)), answer(turn)),
    ]).filter(Boolean));
    draw();
    const ramp = h("span", { class: "quiet small" }, "sure ", h("span", { class: "ramp", "aria-hidden": "true" }, [0, -1, -2, -3, -4, -5].map((value) => h("i", { style: { background: shadeOf(value) } }))), " surprising");
    return [
      h("h2", {}, "Problem ", h("span", { class: "mono" }, Board.line(rollout.example))),
      h("div", { class: "facts" },
        h("span", {}, "score ", h("b", {}, score(rollout.score))),
        h("span", {}, "advantage ", h("b", {}, rollout.advantage === null ? "–" : rollout.advantage.toFixed(2))),
        h("span", {}, "sampled by the policy of step ", h("b", {}, count(rollout.policy_step))),
        h("span", {}, "for ", h("b", {}, PURPOSES[rollout.purpose] || rollout.purpose)),
        h("span", {}, "tokens ", h("b", {}, `${count(rollout.prompt_tokens)} + ${count(rollout.completion_tokens)}`)),
        rollout.faults.map((fault) => h("span", { class: "pill warn" }, fault))),
      h("div", { class: "bar", style: { margin: ".2rem 0" } },
        possible ? [h("label", { class: "small" }, h("input", { type: "checkbox", checked: shaded, onchange: (event) => { shaded = event.target.checked; Board.remember({ shade: shaded ? "1" : "" }); draw(); } }), " shade tokens by log-probability"), ramp]
          : h("span", { class: "quiet small" }, "No log-probabilities were recorded with this rollout."),
        h("button", { class: "push", onclick: ask }, "the same problem under all contexts")),
      turns,
      h("div", { class: "turn grader" }, h("h4", {}, "the grader said"), rollout.feedback ? Board.text(rollout.feedback) : h("p", { class: "quiet small" }, "Nothing.")),
      rollout.error ? h("div", { class: "turn grader" }, h("h4", {}, "the grade is faulty"), Board.text(rollout.error)) : null,
    ].filter(Boolean);
  }

  function sideBySide(group, run) {
    const contexts = new Map();
    for (const rollout of group.rows) contexts.set(rollout.context, [...(contexts.get(rollout.context) || []), rollout]);
    const mean = (rollouts) => rollouts.reduce((sum, each) => sum + (each.score || 0), 0) / rollouts.length;
    const columns = [...contexts].sort((a, b) => mean(b[1]) - mean(a[1])).map(([context, rollouts]) =>
      h("div", {}, h("h4", {}, h("a", { class: "mono", href: Board.link("text", [run], { context }) }, context), ` mean ${score(mean(rollouts))}`),
        group.texts[context] ? h("details", {}, h("summary", { class: "quiet small" }, "its text"), Object.values(group.texts[context]).map((text) => Board.text(text))) : null,
        rollouts.map((rollout) => h("div", { class: "turn answer" }, h("h4", {}, `score ${score(rollout.score)}`, rollout.advantage === null ? "" : `, advantage ${rollout.advantage.toFixed(2)}`), Board.text((rollout.turns.at(-1) || { answer: "" }).answer)))));
    return [h("h2", {}, "One problem, every context"), h("p", { class: "quiet" }, `${group.rows.length} rollouts of ${Board.line((group.rows[0] || { example: "" }).example)} under ${contexts.size} context${contexts.size === 1 ? "" : "s"}, best first.`), h("div", { class: "side", tabindex: "0" }, columns)];
  }

  // What the board sends for download, of a snapshot.
  const SHEET = ["run", "file", "row", "example", "context", "policy_step", "purpose", "score", "advantage", "faults", "prompt_tokens", "completion_tokens", "question", "answer", "feedback", "error"];
  const sheet = (rows) => Board.csv([SHEET, ...rows.map((row) => {
    const flat = { ...row, faults: row.faults.join(", "), question: (row.turns[0] || {}).question, answer: (row.turns.at(-1) || {}).answer };
    return SHEET.map((name) => flat[name]);
  })]);
  const lines = (rows) => rows.map((row) => JSON.stringify({ ...row, turns: row.turns.map(({ tokens, ...turn }) => turn) }) + "\n").join("");

  Board.views.rollouts = {
    title: "Rollouts",
    parts: ["rollouts"],
    single: true,
    own: ["rollout"],
    async show(main, [run], at) {
      const frame = main.closest("main");  // main itself, unless two runs are side by side
      const given = () => Object.fromEntries(["from", "to", "problem", "context", "low", "high", "fault", "purpose", "words", "sort", "order"].map((name) => [name, at.get(name)]));
      const asked = given();
      const head = h("div"), told = h("p", { class: "quiet small", role: "status", style: { margin: "0 0 .5rem" } });
      const panel = h("div", { class: "sticky", id: at.own("rollout"), tabindex: "-1" });
      const side = h("section", { class: "block" });
      const space = h("div"), view = h("div", { class: "window", tabindex: "0", role: "list", "aria-label": "rollouts" }, space);
      let pages = new Map(), total = 0, selected = null, epoch = 0;

      // Filters
      const fields = {};
      const changed = () => {
        for (const [name, field] of Object.entries(fields)) asked[name] = field.value;
        const range = { right: ["1", ""], wrong: ["", "0"], partly: ["0.000001", "0.999999"] }[scores.value] || ["", ""];
        [asked.low, asked.high] = range;
        Board.remember(asked);
        frame.dispatchEvent(new Event("filtered"));
      };
      frame.addEventListener("filtered", () => {  // of two runs side by side both show what passes the one filter
        Object.assign(asked, given());
        at.remember({ rollout: "" });
        view.scrollTop = 0;
        selected = null;  // the conversation beside the list is one of the list
        load();
      });
      let timer = null;
      const soon = () => { clearTimeout(timer); timer = setTimeout(changed, 250); };
      const input = (name, label, type, width) => {
        fields[name] = h("input", { type, value: asked[name], style: { width }, oninput: soon, placeholder: type === "text" ? "any" : "" });
        return h("label", { class: "field" }, label, fields[name]);
      };
      const select = (name, label, options) => {
        fields[name] = h("select", { onchange: changed }, options.map(([value, words]) => h("option", { value }, words)));
        fields[name].value = asked[name];
        return h("label", { class: "field" }, label, fields[name]);
      };
      const scores = h("select", { onchange: changed }, [["", "any"], ["right", "right (1)"], ["partly", "in between"], ["wrong", "wrong (0)"]].map(([value, words]) => h("option", { value }, words)));
      scores.value = asked.low === "1" ? "right" : asked.high === "0" ? "wrong" : asked.low ? "partly" : "";
      const bar = h("div", { class: "bar" }, input("from", "from step", "number", "6rem"), input("to", "to step", "number", "6rem"), input("words", "words", "text", "9rem"), input("problem", "problem", "text", "10rem"),
        select("context", "context", [["", "any"]]), h("label", { class: "field" }, "score", scores), select("fault", "fault", [["", "any"]]), select("purpose", "played for", [["", "anything"]]),
        select("sort", "order by", [["", "newest"], ["score", "score"], ["tokens", "tokens"], ["advantage", "advantage"]]), select("order", "direction", [["", "↓ down"], ["up", "↑ up"]]), ["jsonl", "csv"].map((kind) => h("button", { onclick: () => frame.dispatchEvent(new CustomEvent("saved", { detail: kind })) }, kind.toUpperCase())));
      frame.addEventListener("saved", ({ detail: kind }) => {
        const rows = Board.snapshot && Board.fromSnapshot("rollouts", { run, ...asked, limit: Infinity }).rows.map(({ file, row, full }) => ({ run, file, row, ...full }));
        Board.download(`${run}.${kind}`, rows ? new Blob([kind === "csv" ? sheet(rows) : lines(rows)]) : Board.address(`rollouts.${kind}`, { run, ...asked }));
      });
      const offer = (name, values, words) => {
        const field = fields[name], wanted = asked[name];
        if (field.options.length === values.length + 1) return;
        field.replaceChildren(field.options[0], ...values.map((value) => h("option", { value }, words ? words(value) : value)));
        field.value = wanted;
      };

      // The list
      const line = (row, index) =>
        h("button", { class: "row", role: "listitem", style: { top: `${index * ROW}px` }, "data-index": String(index), "aria-current": selected === `${row.file}/${row.row}` ? "true" : null, onclick: () => open(row) },
          h("span", { class: "num" }, count(row.step)), h("span", { class: "num" }, h("span", { class: "meter", "aria-hidden": "true" }, h("i", { style: { width: `${(row.score || 0) * 100}%` } })), (row.score ?? 0).toFixed(2)),
          h("span", { class: "num" }, row.advantage === null ? "–" : row.advantage.toFixed(2)), h("span", { class: "mono", title: Board.line(row.example) }, Board.tail(row.example)), h("span", { class: "mono" }, row.context), h("span", { class: "num" }, count(row.tokens)),
          h("span", { dir: "auto" }, row.faults ? h("span", { class: "pill warn" }, row.faults) : null, row.purpose !== "slow" ? h("span", { class: "pill" }, PURPOSES[row.purpose] || row.purpose) : null, " ", Board.line(row.preview || "")));
      const draw = () => {
        const first = Math.floor(view.scrollTop / ROW), last = Math.min(total - 1, Math.ceil((view.scrollTop + view.clientHeight) / ROW) + 4);
        const rows = [];
        for (let index = Math.max(0, first - 4); index <= last; index += 1) {
          const page = pages.get(Math.floor(index / PAGE));
          if (page === undefined) fetchPage(Math.floor(index / PAGE));
          else if (page && page[index % PAGE]) rows.push(line(page[index % PAGE], index));
        }
        const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.index : null;
        space.replaceChildren(...rows);
        if (focused) { const again = space.querySelector(`[data-index="${focused}"]`); if (again) again.focus({ preventScroll: true }); }
      };
      const tell = (answer) => {
        told.replaceChildren(answer.total === answer.all ? `${count(answer.all)} rollouts` : `${count(answer.total)} of ${count(answer.all)} rollouts`,
          answer.indexed < answer.files ? `; ${count(answer.indexed)} of ${count(answer.files)} files are read so far` : "", Board.snapshot ? "; a snapshot holds only the newest ones" : "");
        if (answer.indexed < answer.files) { clearTimeout(reading); reading = setTimeout(load, 700); }
      };
      let reading = null;
      const fetchPage = async (number) => {
        pages.set(number, null);
        const mine = epoch;
        const answer = await Board.api("rollouts", { run, ...asked, order: asked.order || "down", offset: number * PAGE, limit: PAGE });
        if (mine !== epoch) return;
        pages.set(number, answer.rows);
        draw();
      };
      const load = async () => {
        if (!main.isConnected) return;
        const mine = ++epoch;
        const answer = await Board.api("rollouts", { run, ...asked, order: asked.order || "down", offset: Math.floor(view.scrollTop / ROW / PAGE) * PAGE, limit: PAGE });
        if (mine !== epoch) return;
        head.replaceChildren(...Board.notes(answer.told).filter(Boolean));
        if (!answer.all && answer.indexed >= answer.files) {
          main.replaceChildren(head, Board.empty("No rollouts in this run folder", "A run keeps them with `output.save_rollouts=true`, in rollouts/ as parquet files; GEPA only keeps those of its cycles."));
          return;
        }
        total = answer.total;
        pages = new Map([[Math.floor(answer.offset / PAGE), answer.rows]]);
        space.style.height = `${total * ROW}px`;
        offer("context", answer.facets.contexts || []);
        offer("fault", answer.facets.faults || []);
        offer("purpose", answer.facets.purposes || [], (value) => PURPOSES[value] || value);
        tell(answer);
        draw();
        if (!total) panel.replaceChildren();
        if (!total) space.replaceChildren(h("p", { class: "quiet", style: { padding: "1rem" } }, "No rollout passes these filters."));
        const linked = /^([\w-]+)\/(\d+)$/.exec(at.get("rollout"));
        if (selected === null && linked) open({ file: linked[1], row: Number(linked[2]) }, false);
        else if (selected === null && answer.rows.length) open(answer.rows[0], false);
      };
      const open = async (row, moved = true) => {
        selected = `${row.file}/${row.row}`;
        if (moved) at.remember({ rollout: selected });
        draw();
        const rollout = await Board.api("rollout", { run, file: row.file, row: row.row });
        if (selected !== `${row.file}/${row.row}`) return;
        side.replaceChildren();
        const ask = async () => { side.replaceChildren(...sideBySide(await Board.api("group", { run, file: row.file, example: row.example }), run)); side.scrollIntoView({ block: "nearest" }); };
        panel.replaceChildren(...conversation(rollout, run, ask).flat(Infinity).filter(Boolean));
        if (moved && matchMedia("(max-width: 1100px)").matches) panel.scrollIntoView({ block: "start" });
      };
      view.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
      view.addEventListener("keydown", (event) => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], at = event.target.dataset.index;
        if (!step || at === undefined) return;
        event.preventDefault();
        const next = Number(at) + step;
        if (next < 0 || next >= total) return;
        if ((next + 1) * ROW > view.scrollTop + view.clientHeight) view.scrollTop = (next + 1) * ROW - view.clientHeight;
        if (next * ROW < view.scrollTop) view.scrollTop = next * ROW;
        draw();
        const button = space.querySelector(`[data-index="${next}"]`);
        if (button) { button.focus({ preventScroll: true }); button.click(); }
      });
      const titles = ["step", "score", "advantage", "problem", "context", "tokens", "answer"];
      if (frame !== main && at.first) frame.prepend(bar);
      main.append(head, frame === main ? bar : "", told, h("div", { class: "split rollouts" }, h("div", { class: "list" }, h("div", { class: "head", "aria-hidden": "true" }, titles.map((name) => h("span", { class: ["step", "score", "advantage", "tokens"].includes(name) ? "num" : null }, name))), view), panel), side);
      await load();
      return load;
    },
  };
})();
