/* What the three figures share: controls with labels, numbers that are read aloud, SVG.
 *
 * Plain script without modules, so that the pages work when they are opened from a disk.
 *
 * Interface: ShardLab.figure(name, build): build(place) is called for the element
 * <div class="moving" data-figure="name">, which holds the same as a table for readers without
 * JavaScript. ShardLab.range, .choice, .live, .svg, .draw, .bytes,
 * .duration, .milliseconds.
 */
"use strict";
window.ShardLab = window.ShardLab || {};

ShardLab.figure = (name, build) => {
    const place = document.querySelector('.moving[data-figure="' + name + '"]');
    if (!place) return;
    const table = document.createElement("details");
    const title = document.createElement("summary");
    title.textContent = "As a table";
    table.append(title, ...place.childNodes);
    place.append(table);
    const moving = document.createElement("div");
    place.prepend(moving);
    build(moving);
};

// An element with attributes and children; "svg:rect" is one of SVG.
ShardLab.make = (kind, attributes, ...children) => {
    const svg = kind.startsWith("svg:");
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", kind.slice(4))
                        : document.createElement(kind);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children);
    return element;
};

let controls = 0;

// A label, its control and what it is set to, one row.
const row = (form, label, control, said) => {
    control.id = "control-" + ++controls;
    const text = ShardLab.make("label", {for: control.id}, label);
    form.append(ShardLab.make("div", {class: "control"}, text, control, ...(said ? [said] : [])));
};

// A slider over the places 0 to n - 1; words(place) says what a place is.
ShardLab.range = (form, label, n, start, words, changed) => {
    const control = ShardLab.make("input", {type: "range", min: 0, max: n - 1, step: 1,
                                            value: start});
    const said = ShardLab.make("output", {});
    const say = () => {
        said.textContent = words(Number(control.value));
        control.setAttribute("aria-valuetext", said.textContent);
    };
    row(form, label, control, said);
    said.setAttribute("for", control.id);
    control.addEventListener("input", () => { say(); changed(); });
    say();
    return {
        get: () => Number(control.value),
        set: (place, most) => {
            if (most !== undefined) control.max = most;
            control.value = place;
            say();
        },
        say,
    };
};

// A list to choose from.
ShardLab.choice = (form, label, names, start, changed) => {
    const control = ShardLab.make("select", {}, ...names.map((name, i) =>
        ShardLab.make("option", {value: i}, name)));
    control.value = start;
    row(form, label, control);
    control.addEventListener("change", changed);
    return {get: () => Number(control.value)};
};

// A sentence that screen readers say when it changes, after the hand has come to rest.
ShardLab.live = (place) => {
    const shown = ShardLab.make("p", {class: "figures"});
    const spoken = ShardLab.make("p", {class: "spoken", "aria-live": "polite"});
    let timer = 0;
    place.append(shown, spoken);
    return (text) => {
        shown.textContent = text;
        clearTimeout(timer);
        timer = setTimeout(() => { spoken.textContent = text; }, 400);
    };
};

// A picture as wide as there is room: draw(svg, width) returns its height; again() draws it again.
ShardLab.draw = (place, title, draw) => {
    const svg = ShardLab.make("svg:svg", {role: "img", "aria-label": title, class: "drawn"});
    place.append(svg);
    let last = 0;
    const again = () => {
        const width = Math.max(280, Math.floor(place.clientWidth));
        svg.replaceChildren();
        const height = draw(svg, width);
        svg.setAttribute("viewBox", "0 0 " + width + " " + height);
        svg.setAttribute("width", width);
        svg.setAttribute("height", height);
        last = width;
    };
    new ResizeObserver(() => {
        if (Math.max(280, Math.floor(place.clientWidth)) !== last) again();
    }).observe(place);
    return again;
};

ShardLab.text = (svg, x, y, words, attributes) => {
    const text = ShardLab.make("svg:text", Object.assign({x, y}, attributes), words);
    svg.append(text);
    return text;
};

ShardLab.rect = (svg, x, y, width, height, kind, title) => {
    const rect = ShardLab.make("svg:rect", {x, y, width: Math.max(width, 0), height, class: kind});
    if (title) rect.append(ShardLab.make("svg:title", {}, title));
    svg.append(rect);
};

ShardLab.line = (svg, x1, y1, x2, y2, kind) => {
    svg.append(ShardLab.make("svg:line", {x1, y1, x2, y2, class: kind}));
};

// A legend of [class, words] in as many rows as it needs; the height.
ShardLab.legend = (svg, width, top, entries) => {
    let x = 0, y = top;
    for (const [kind, words] of entries) {
        const room = 28 + 7.8 * words.length;
        if (x > 0 && x + room > width) {
            x = 0;
            y += 22;
        }
        ShardLab.rect(svg, x, y, 14, 14, kind);
        ShardLab.text(svg, x + 20, y + 12, words, {});
        x += room + 10;
    }
    return y - top + 22;
};

ShardLab.bytes = (n) => {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    while (n >= 1024 && i < units.length - 1) {
        n /= 1024;
        i++;
    }
    return (i === 0 ? String(n) : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)) + " " + units[i];
};

ShardLab.duration = (seconds) =>
    seconds < 1e-3 ? Math.round(1e6 * seconds) + " µs" : (1e3 * seconds).toFixed(2) + " ms";

ShardLab.milliseconds = (picoseconds) => (picoseconds / 1e9).toFixed(2) + " ms";
