"""How the HTML report looks, on light and dark screens and on paper."""

from __future__ import annotations

from engine.records.report.markup import Markup

STYLE = Markup("""
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --rule: #d5d9de; --dim: #5d6670;
        --good: #1f77b4; --bad: #c2571a; --soft: #eef1f4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --paper: #15181b; --rule: #343a40; --dim: #9aa4ae; --good: #64b5f6;
          --bad: #ffab70; --soft: #1f2429; } }
body { margin: 0; background: var(--paper); color: var(--ink);
       font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--rule); }
.headline { font-size: 1.2rem; } .headline strong { font-size: 1.8rem; color: var(--good); }
.note, figcaption { color: var(--dim); font-size: .9rem; }
.warning { border-left: 4px solid var(--bad); padding-left: .75rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0;
         border-bottom: 1px solid var(--rule); overflow-wrap: anywhere; min-width: 4.5rem; }
th { color: var(--dim); font-weight: 600; }
code { font-size: .92em; }
summary { cursor: pointer; }
figure { margin: .5rem 0; } svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font-size: 12px; }
.level { stroke: var(--rule); } .one { stroke: var(--dim); stroke-dasharray: 4 3; }
.line { fill: none; stroke: var(--good); stroke-width: 2; }
.faster { fill: var(--good); fill-opacity: .75; } .slower { fill: var(--bad); fill-opacity: .75; }
.sure { stroke: var(--ink); stroke-width: 1.5; }
svg .sign { font-size: 15px; fill: var(--dim); } svg .keep { fill: var(--good); }
svg .regression, svg .failed { fill: var(--bad); }
@media print { details { display: block; } }
""")
