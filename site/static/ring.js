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
    const again = ShardLab.draw(
        place, "The ring: the shards that each rank has, and what it sends next", ring);

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

    // Ranks on a circle, each with its shards; within, the wires, and what goes over each next.
    function ring(svg, width) {
        const W = ranks(world.get()), now = ShardLab.ring(W, step.get());
        const cell = Math.min(20, (width < 500 ? 84 : 128) / W), room = W * cell / 2 + 4;
        const size = Math.min(width, 480);
        const middle = width / 2, radius = size / 2 - Math.max(room, 34);
        const inner = radius - Math.max(room, 34);
        const at = (turn, far) => [middle + far * Math.sin(turn), size / 2 - far * Math.cos(turn)];
        for (let rank = 0; rank < W; rank++) {
            const turn = 2 * Math.PI * rank / W, [x, y] = at(turn, radius);
            const sends = now.sends[rank] >= 0, part = 2 * Math.PI / W, gap = Math.min(0.12, part / 5);
            const [x1, y1] = at(turn + gap, inner), [x2, y2] = at(turn + part - gap, inner);
            const kind = sends ? "wire" : "wire idle";
            svg.append(ShardLab.make("svg:path", {class: kind,
                d: `M${x1} ${y1}A${inner} ${inner} 0 0 1 ${x2} ${y2}`}));
            const angle = (turn + part - gap) * 180 / Math.PI;
            svg.append(ShardLab.make("svg:path", {class: kind + " tip", d: "M-7 -4L0 0L-7 4",
                transform: `translate(${x2} ${y2}) rotate(${angle})`}));
            if (sends) {
                const [sx, sy] = at(turn + part / 2, inner - 16);
                ShardLab.rect(svg, sx - 9, sy - 10, 18, 20, "cell-sent");
                ShardLab.text(svg, sx, sy + 5, String(now.sends[rank]), {"text-anchor": "middle"});
            }
            ShardLab.text(svg, x, y - 6, "rank " + rank, {"text-anchor": "middle"});
            for (let shard = 0; shard < W; shard++) {
                const age = now.has[rank].indexOf(shard), left = x + (shard - W / 2) * cell;
                const shown = age < 0 ? "cell-empty" : age === 0 ? "cell-own"
                    : age === step.get() ? "cell-new" : "cell-had";
                ShardLab.rect(svg, left + 0.5, y, cell - 1, 18, shown);
                if (age >= 0)
                    ShardLab.text(svg, left + cell / 2, y + 14, String(shard),
                                  {"text-anchor": "middle", class: "in-" + shown});
            }
        }
        return size + 8 + ShardLab.legend(svg, width, size + 8, [
            ["cell-own", "its own"], ["cell-new", "just received"], ["cell-had", "received before"],
            ["cell-empty", "not there yet"], ["cell-sent", "sent next"]]);
    }

    show = () => {
        const W = ranks(world.get()), now = ShardLab.ring(W, step.get());
        step.say();
        say("After step " + step.get() + " of " + (W - 1) + " each rank has " + (step.get() + 1) +
            " of " + W + " shards. It has sent " + now.bytes.toLocaleString("en-US") +
            " bytes, in " + ShardLab.duration(now.time) + ".");
        place.dataset.bytes = now.bytes;
        place.dataset.shard = now.shard;
        again();
    };
    show();
});
