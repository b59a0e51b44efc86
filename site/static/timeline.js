/* timeline.js: a step in time over bandwidth, tokens and prefetch depth. All times are the
 * planner's: timeline_data.js has a cell for each place of the controls.
 *
 * Interface: ShardLab.timeline(bandwidth, tokens, depth) -> the cell, by places in the lists.
 */
"use strict";

ShardLab.timeline = (bandwidth, tokens, depth) => {
    const data = ShardLab.timelineData;
    return data.cells[(bandwidth * data.tokens.length + tokens) * data.depths.length + depth];
};

ShardLab.figure("timeline", (place) => {
    const data = ShardLab.timelineData;
    const kinds = {A: "box-gather", R: "box-reduce", F: "box-forward", B: "box-backward",
                   O: "box-step"};
    const names = {A: "all-gather of ", R: "reduce-scatter of ", F: "forward of ",
                   B: "backward of ", O: "gradient norm and optimizer"};
    const form = ShardLab.make("form", {class: "controls"});
    form.addEventListener("submit", (event) => event.preventDefault());
    let show = () => {};
    const range = (label, list, start, words) =>
        ShardLab.range(form, label, list.length, start, words, () => show());
    const bandwidth = range("Bandwidth", data.bandwidths, 3, (i) => data.bandwidths[i] + " GB/s");
    const tokens = range("Tokens per GPU", data.tokens, 2,
                         (i) => data.tokens[i].toLocaleString("en-US"));
    const depth = range("Prefetch depth", data.depths, Math.max(0, data.depths.indexOf(1)),
                        (i) => data.depths[i] === 1 ? "1 unit" : data.depths[i] + " units");
    place.append(form);
    const now = () => ShardLab.timeline(bandwidth.get(), tokens.get(), depth.get());
    const say = ShardLab.live(place);
    const again = ShardLab.draw(place, "One step of one GPU in time, by stream", lanes);
    const table = ShardLab.make("table", {class: "numbers"});
    place.append(ShardLab.make("div", {class: "scrolls"}, table));

    function lanes(svg, width) {
        const cell = now(), end = cell.step / 1e5; // tenths of a microsecond, as the boxes
        const x = (when) => when / end * (width - 2);
        data.lanes.forEach((lane, i) => {
            ShardLab.text(svg, 0, 62 * i + 13, lane + (i === 1 ? "" : "s"), {});
            ShardLab.line(svg, 0, 62 * i + 34, width, 62 * i + 34, "grid");
        });
        for (const [lane, kind, unit, from, to] of cell.boxes) {
            const top = 62 * lane + 19, wide = x(to) - x(from);
            ShardLab.rect(svg, x(from), top, Math.max(wide, 0.5), 30, kinds[kind],
                          names[kind] + unit + ": " + ShardLab.milliseconds((to - from) * 1e5));
            const fits = [unit, unit.replace("h.", "")].find((name) => wide > 8 * name.length + 3);
            if (fits)
                ShardLab.text(svg, x(from) + wide / 2, top + 20, fits,
                              {"text-anchor": "middle", class: "in-" + kinds[kind]});
        }
        axis(svg, width, 62 * 3, cell.step / 1e9, x);
        return 62 * 3 + 30 + ShardLab.legend(svg, width, 62 * 3 + 30, [
            ["box-gather", "all-gather"], ["box-forward", "forward"], ["box-backward", "backward"],
            ["box-reduce", "reduce-scatter"], ["box-step", "norm, optimizer"]]);
    }

    function axis(svg, width, y, milliseconds, x) {
        let step = 10 ** Math.floor(Math.log10(milliseconds));
        while (milliseconds / step < 4) step /= 2;
        ShardLab.line(svg, 0, y, width, y, "axis");
        for (let when = 0; when <= milliseconds; when += step) {
            const at = x(when * 1e4);
            if (at > width - 40 && when > 0) break;
            ShardLab.line(svg, at, y, at, y + 5, "axis");
            ShardLab.text(svg, at, y + 19, String(when),
                          {"text-anchor": when === 0 ? "start" : "middle"});
        }
        ShardLab.text(svg, width, y + 19, "ms", {"text-anchor": "end"});
    }

    show = () => {
        const cell = now(), hidden = cell.communication - cell.exposed;
        say("A step takes " + ShardLab.milliseconds(cell.step) + ": the GPU computes for " +
            ShardLab.milliseconds(cell.compute) + ", communicates for " +
            ShardLab.milliseconds(cell.communication) + ", and " +
            Math.round(100 * hidden / cell.communication) + " % of that is hidden.");
        const rows = [["step", "step"], ["compute", "kernels and copies"],
                      ["communication", "communication"], ["exposed", "… of it exposed"],
                      ["idle", "idle"]];
        table.replaceChildren(ShardLab.make("caption", {}, "Of one step, as planned"),
            ...rows.map(([name, words]) => ShardLab.make("tr", {},
                ShardLab.make("th", {scope: "row"}, words),
                ShardLab.make("td", {class: "number", "data-time": name,
                                     "data-picoseconds": cell[name]},
                              ShardLab.milliseconds(cell[name])))),
            ShardLab.make("tr", {},
                ShardLab.make("th", {scope: "row"}, "unsharded parameters, at most"),
                ShardLab.make("td", {class: "number", "data-bytes": cell.unsharded},
                              ShardLab.bytes(cell.unsharded))));
        again();
    };
    show();
});
