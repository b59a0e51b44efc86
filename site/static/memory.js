/* memory.js: what a rank holds, by category, over model, ranks, strategy and precision. The
 * formulas are made of site/memory.json (memory_data.js).
 *
 * Interface: ShardLab.memory({model, world, strategy, precision}) -> bytes of each category, places
 * in the lists of ShardLab.memoryData.
 */
"use strict";

ShardLab.memory = (at) => {
    const data = ShardLab.memoryData, model = data.models[at.model];
    const types = data.precisions[at.precision];
    const shards = data.strategies[at.strategy][0] === "ddp" ? 1 : data.worlds[at.world];
    const sizes = ShardLab.memorySizes(model.L, model.C, model.H, model.V, data.tokens, shards,
                                       types.a, types.b);
    return ShardLab.memoryFormulas[at.strategy][at.precision].map((formula) => formula(...sizes));
};

// Parameters of a model, without its padding.
ShardLab.memoryParameters = (model) =>
    ShardLab.memorySizes(model.L, model.C, model.H, model.V, ShardLab.memoryData.tokens,
                         1, 4, 4)[10];

ShardLab.figure("memory", (place) => {
    const data = ShardLab.memoryData;
    const form = ShardLab.make("form", {class: "controls"});
    form.addEventListener("submit", (event) => event.preventDefault());
    const billions = (n) => n < 1e9 ? Math.round(n / 1e6) + " million"
                                    : (n / 1e9).toFixed(n < 1e10 ? 2 : 0) + " billion";
    const modelWords = (i) => data.models[i].name + ": " +
        billions(ShardLab.memoryParameters(data.models[i])) + " parameters";
    const strategyNames = data.strategies.map((strategy) => strategy[1]);
    let show = () => {};
    const model = ShardLab.range(form, "Model (N)", data.models.length, 3, modelWords,
                                 () => show());
    const world = ShardLab.range(form, "Ranks (W)", data.worlds.length, 2,
                                 (i) => data.worlds[i] + " ranks", () => show());
    const strategy = ShardLab.choice(form, "Strategy", strategyNames, 3, () => show());
    const precision = ShardLab.choice(form, "Precision", data.precisions.map((one) => one.name), 0,
                                      () => show());
    place.append(form);
    const at = (i) => ({model: model.get(), world: world.get(), strategy: i,
                        precision: precision.get()});
    const say = ShardLab.live(place);
    const again = ShardLab.draw(place, "Memory of a rank by category, under each strategy",
                                (svg, width) => bars(svg, width));
    const table = ShardLab.make("table", {class: "numbers"});
    place.append(ShardLab.make("div", {class: "scrolls"}, table));

    function bars(svg, width) {
        const rows = data.strategies.map((_, i) => ShardLab.memory(at(i)));
        const most = Math.max(...rows.map((row) => row.reduce((a, b) => a + b)));
        const x = (bytes) => bytes / most * (width - 2);
        rows.forEach((row, i) => {
            const top = 48 * i, chosen = i === strategy.get();
            const sum = row.reduce((a, b) => a + b);
            ShardLab.text(svg, 0, top + 13, strategyNames[i] + ": " + ShardLab.bytes(sum),
                          {class: chosen ? "chosen" : ""});
            let left = 0;
            row.forEach((bytes, c) => {
                ShardLab.rect(svg, x(left), top + 19, x(bytes), 20, "memory" + c,
                              data.categories[c].name + ": " + ShardLab.bytes(bytes));
                left += bytes;
            });
            if (chosen) ShardLab.rect(svg, 0, top + 18, x(sum), 22, "frame");
        });
        const bottom = 48 * rows.length;
        if (data.gpu < most) {
            const at = x(data.gpu), right = at > width / 2;
            ShardLab.line(svg, at, 16, at, bottom, "bound");
            ShardLab.text(svg, at + (right ? -4 : 4), bottom + 6, "80 GiB",
                          {"text-anchor": right ? "end" : "start"});
        }
        return bottom + 16 + ShardLab.legend(svg, width, bottom + 16, data.categories.map(
            (category, c) => ["memory" + c, category.name]));
    }

    show = () => {
        const values = ShardLab.memory(at(strategy.get()));
        const kept = values.filter((_, c) => data.categories[c].kept).reduce((a, b) => a + b);
        const sum = values.reduce((a, b) => a + b);
        say(strategyNames[strategy.get()] + ", " + data.models[model.get()].name + ", " +
            data.worlds[world.get()] + " ranks: " + ShardLab.bytes(kept) +
            " between steps, at most " + ShardLab.bytes(sum) + " within a step, which " +
            (sum <= data.gpu ? "fits" : "may not fit") + " into 80 GiB.");
        table.replaceChildren(ShardLab.make("caption", {}, "A rank's bytes, " +
                                            strategyNames[strategy.get()]),
            ...values.map((bytes, c) => ShardLab.make("tr", {},
                ShardLab.make("th", {scope: "row"}, data.categories[c].name),
                ShardLab.make("td", {}, data.categories[c].kept ? "always" : "at most"),
                ShardLab.make("td", {class: "number", "data-category": data.categories[c].name},
                              bytes.toLocaleString("en-US")))));
        again();
    };
    show();
});
