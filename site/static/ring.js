/* ring.js: the ring of an all-gather, step by step: which shards each rank has, and what it sends
 * next.
 *
 * Interface: ShardLab.ring(W, step) -> {has: [[shard …] of each rank], sends: shard of each rank or
 * -1, bytes: sent by each rank so far, time: seconds}.
 */
"use strict";

// A block of GPT-2 medium, as handout 3 has it; latency and bandwidth for illustration.
ShardLab.ringUnit = {elements: 12596224, latency: 5e-6, bandwidth: 100e9};

ShardLab.ring = (W, step) => {
    const unit = ShardLab.ringUnit, shard = 4 * Math.ceil(unit.elements / W);
    const has = [], sends = [];
    for (let rank = 0; rank < W; rank++) {
        const list = [];
        for (let k = 0; k <= step; k++) list.push((rank - k + W) % W);
        has.push(list);
        sends.push(step < W - 1 ? (rank - step + W) % W : -1);
    }
    return {has, sends, shard, bytes: step * shard,
            time: step * (unit.latency + shard / unit.bandwidth)};
};

ShardLab.figure("ring", (place) => {
    const form = ShardLab.make("form", {class: "controls"});
    form.addEventListener("submit", (event) => event.preventDefault());
    let show = () => {}, timer = 0;
    const ranks = (i) => i + 2;
    const world = ShardLab.range(form, "Ranks (W)", 7, 2, (i) => ranks(i) + " ranks", () => {
        stop();
        step.set(Math.min(step.get(), ranks(world.get()) - 1), ranks(world.get()) - 1);
        show();
    });
    const step = ShardLab.range(form, "Step", ranks(2), 0,
                                (i) => i + " of " + (ranks(world.get()) - 1), () => {
        stop();
        show();
    });
    const play = ShardLab.make("button", {type: "button"}, "Play");
    form.append(ShardLab.make("div", {class: "control"}, play));
    place.append(form);
    const say = ShardLab.live(place);
    const again = ShardLab.draw(place, "The shards that each rank has", rows);

    function stop() {
        clearInterval(timer);
        timer = 0;
        play.textContent = "Play";
    }

    // Where motion is not wanted, a press is one step.
    function next() {
        const last = ranks(world.get()) - 1;
        step.set(step.get() === last ? 0 : step.get() + 1);
        if (step.get() === last) stop();
        show();
    }

    play.addEventListener("click", () => {
        if (timer) return stop();
        next();
        if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
        if (step.get() === ranks(world.get()) - 1) return;
        play.textContent = "Stop";
        timer = setInterval(next, 900);
    });

    function rows(svg, width) {
        const W = ranks(world.get()), now = ShardLab.ring(W, step.get());
        const left = 58, right = width < 500 ? 62 : 150, wide = (width - left - right) / W;
        for (let rank = 0; rank < W; rank++) {
            const top = 40 * rank;
            ShardLab.text(svg, 0, top + 21, "rank " + rank, {});
            for (let shard = 0; shard < W; shard++) {
                const age = now.has[rank].indexOf(shard), x = left + shard * wide;
                const kind = age < 0 ? "cell-empty" : age === 0 ? "cell-own"
                    : age === step.get() ? "cell-new" : "cell-had";
                ShardLab.rect(svg, x + 1, top + 2, wide - 2, 30, kind);
                if (age >= 0)
                    ShardLab.text(svg, x + wide / 2, top + 22, String(shard),
                                  {"text-anchor": "middle", class: "in-" + kind});
            }
            if (now.sends[rank] >= 0)
                ShardLab.text(svg, width - right + 6, top + 21, width < 500
                    ? now.sends[rank] + " → " + (rank + 1) % W
                    : "sends " + now.sends[rank] + " to rank " + (rank + 1) % W, {});
        }
        return 40 * W + 8 + ShardLab.legend(svg, width, 40 * W + 8, [
            ["cell-own", "its own"], ["cell-new", "just received"], ["cell-had", "received before"],
            ["cell-empty", "not there yet"]]);
    }

    show = () => {
        const W = ranks(world.get()), now = ShardLab.ring(W, step.get());
        step.say();
        say("After step " + step.get() + " of " + (W - 1) + " each rank has " + (step.get() + 1) +
            " of " + W + " shards. It has sent " + now.bytes.toLocaleString("en-US") +
            " bytes, in " + Math.round(1e6 * now.time) + " us.");
        place.dataset.bytes = now.bytes;
        place.dataset.shard = now.shard;
        again();
    };
    show();
});
