"""The style sheet of the results page: light and dark, narrow and on paper.

Colours of the plots are those of Okabe and Ito (2008), "Color Universal Design", which people with
any colour vision tell apart; each has a lighter twin for a dark ground.

Interface: STYLE.
"""

STYLE = """
:root { color-scheme: light dark;
  --ground: #ffffff; --text: #1b1f24; --quiet: #57606a; --edge: #d0d7de; --box: #f6f8fa;
  --good: #116329; --bad: #a40e26; --wait: #7a4b00; --note: #fff4d6; --note-edge: #b58900;
  --kept: #8c959f; --params: #0072b2; --grads: #d55e00; --rest: #e9c46a;
  --ag: #0072b2; --rs: #d55e00; --ar: #009e73; --other: #cc79a7; --kernel: #c6cdd5; --fore: #c3e3d1;
  --back: #bda6d6; --done: #e6f6ea;
  --theory: #8250a6; --bound: #00735a; --shade0: #eef3fa; --shade1: #f8f1ea; --on: #ffffff; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #0f1419; --text: #e6e9ed; --quiet: #9da7b3; --edge: #38414c; --box: #181f27;
  --good: #57c478; --bad: #ff8a93; --wait: #e3b341; --note: #33290c; --note-edge: #d0a215;
  --kept: #6b7683; --params: #3d9edb; --grads: #f08337; --rest: #cfae57;
  --ag: #3d9edb; --rs: #f08337; --ar: #2fc39a; --other: #dd93bb; --kernel: #465261; --fore: #2b5543;
  --back: #6a4f8a; --done: #12301c;
  --theory: #c39be0; --bound: #45cfa9; --shade0: #17212e; --shade1: #271f19; --on: #0f1419; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.2rem 3rem; max-width: 62rem; background: var(--ground);
  color: var(--text); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; margin: 0.6rem 0 0.2rem; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 0.6rem; padding-top: 0.6rem;
  border-top: 1px solid var(--edge); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 0.4rem; }
p { margin: 0.4rem 0; max-width: 46rem; }
a { color: inherit; }
code, pre { font: 0.86rem/1.45 ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; }
pre { margin: 0.4rem 0; padding: 0.6rem 0.8rem; background: var(--box); border-radius: 6px;
  border: 1px solid var(--edge); white-space: pre-wrap; overflow-wrap: anywhere; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem;
  margin: 0.6rem 0; color: var(--quiet); }
dl.facts dd { margin: 0; color: var(--text); overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: var(--quiet); padding-bottom: 0.2rem; }
th, td { text-align: left; padding: 0.35rem 0.6rem 0.35rem 0; vertical-align: top;
  border-top: 1px solid var(--edge); }
thead th { border-top: 0; color: var(--quiet); font-weight: 600; font-size: 0.9rem; }
td.number, th.number { text-align: right; padding-right: 0; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th[scope=row] { font-weight: 600; } th[scope=row], tr.more td, td code { overflow-wrap: anywhere; }
tr.more td, tr.more th { border-top: 0; padding-top: 0; }
.status { white-space: nowrap; font-weight: 600; width: 6.5rem; }
.passed { color: var(--good); } .failed, .error, .timeout { color: var(--bad); }
.skipped, .infrastructure { color: var(--wait); } .todo { color: var(--params); }
.quiet { color: var(--quiet); font-weight: 400; }
.next, .cause { background: var(--note); border-left: 4px solid var(--note-edge);
  padding: 0.6rem 0.9rem; border-radius: 0 6px 6px 0; margin: 0.6rem 0; }
.done { background: var(--done); border-color: var(--good); }
.next h2 { margin: 0; padding: 0; border: 0; }
.cause { padding: 0.3rem 0.8rem; overflow-wrap: anywhere; }
details { margin: 0.35rem 0; } summary { cursor: pointer; }
details > :not(summary) { margin-left: 1.1rem; }
ul.places { list-style: none; padding: 0; margin: 0.3rem 0; } ul.places li { padding: 0.1rem 0; }
figure { margin: 0.8rem 0 1.6rem; } figcaption { max-width: 46rem; margin-top: 0.3rem; }
.scroll { overflow-x: auto; }
svg.plot { display: block; width: 100%; min-width: 44rem; height: auto; }
svg text { fill: var(--text); font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
svg text.tick { fill: var(--quiet); font-size: 11px; } svg text.small { font-size: 12px; }
svg text.box, svg text.box-k { font-size: 10px; } svg text.box { fill: var(--on); }
.grid { stroke: var(--edge); stroke-width: 0.6; } .axis { stroke: var(--quiet); }
.phase0 { fill: var(--shade0); } .phase1 { fill: var(--shade1); }
.unit { fill: none; stroke: var(--quiet); stroke-width: 0.8; }
.hover { fill: transparent; } .hover:hover { fill: var(--text); fill-opacity: 0.1; }
.k-kept { fill: var(--kept); } .k-params { fill: var(--params); } .k-grads { fill: var(--grads); }
.k-rest { fill: var(--rest); }
[class^="k-sent"] { fill: var(--other); }
.k-sent0 { fill: var(--ag); } .k-sent1 { fill: var(--rs); } .k-sent2 { fill: var(--ar); }
.s-k, .s-o { fill: var(--kernel); } .s-f { fill: var(--fore); } .s-b { fill: var(--back); }
.line-ref { fill: none; stroke: var(--text); stroke-width: 1.6; stroke-dasharray: 5 3; }
.halo { fill: none; stroke: var(--ground); stroke-width: 3.6; stroke-opacity: 0.75; }
.line-theory { stroke: var(--theory); stroke-width: 1.6; stroke-dasharray: 2 3; }
.line-bound { stroke: var(--bound); stroke-width: 2; }
@media (max-width: 40rem) { body { padding: 0.6rem 0.8rem 2rem; } .status { width: 5.2rem; }
  dl.facts { grid-template-columns: 1fr; } dl.facts dd { margin-bottom: 0.3rem; } }
@media print { body { max-width: none; font-size: 10pt; } .scroll { overflow: visible; }
  svg.plot { min-width: 0; } figure, tr, .next { break-inside: avoid; }
  h2, h3 { break-after: avoid; } pre { white-space: pre-wrap; } }
"""
