"use strict";
// Recipe: the settings of a run, as its folder has them; beside another run, what differs is marked.
(() => {
  const { h } = Board;
  const ended = (run) => [run.status, run.started && `started ${run.started}`, `step ${Board.count(run.step)}`, `${Board.count(run.rollouts)} rollouts`, run.tags.join(", ")].filter(Boolean).join(" · ");

  // Each line with the lines it stands under, by which the same setting is found in another recipe.
  const located = (recipe) => {
    const above = [];
    return recipe.trimEnd().split("\n").map((line) => {
      const depth = line.search(/\S/);
      while (above.length && above.at(-1)[0] >= depth) above.pop();
      const place = [...above.map(([, upper]) => upper), line].join("\n");
      above.push([depth, line]);
      return [line, place];
    });
  };

  Board.views.recipe = {
    title: "Recipe",
    parts: ["run", "tags"],
    single: true,
    async show(main, [run]) {
      const update = async () => {
        const found = await Board.api("run", { run });
        const beside = Board.place().runs.slice(0, 2).find((name) => name !== run);
        const theirs = beside && new Set(located((await Board.api("run", { run: beside })).recipe).map(([, place]) => place));
        const lines = located(found.recipe).map(([line, place]) => h("div", { class: theirs && !theirs.has(place) ? "new" : null }, Board.shown(line)));
        main.replaceChildren(...Board.notes(found).filter(Boolean), h("p", { class: "quiet small" }, ended(found)),
          found.recipe ? h("div", { class: "diff text", tabindex: "0" }, lines) : Board.empty("No recipe here", "recipe.yaml is written when a run begins."));
      };
      await update();
      return update;
    },
  };
})();
