"""How the report looks, in light and in dark."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf8; --card: #fff; --ink: #1d2129; --quiet: #667085; --line: #e6e3de;
  --o0: #3f78c9; --o1: #a9c6ee; --o2: #bcc0c7; --o3: #cf3f52; --o4: #e39a1e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1b1e24; --ink: #e7e9ed; --quiet: #98a0ae; --line: #2c313a;
    --o0: #5b93e4; --o1: #33517d; --o2: #5a606b; --o3: #ef6474; --o4: #f0b04a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 3.5rem 2rem 3rem; max-width: 66rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums;
}
header p { margin: 0; color: var(--quiet); }
h1 { margin: .1rem 0 .2rem; font-size: 2.1rem; line-height: 1.2; letter-spacing: -.02em; }
h2 { margin: 0; font-size: 1.1rem; letter-spacing: -.005em; }
section {
  margin-top: 1.5rem; padding: 1.4rem 1.6rem; overflow-x: auto;
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
}
section > p { margin: .15rem 0 1rem; color: var(--quiet); font-size: .9rem; }
dl { display: flex; flex-wrap: wrap; gap: 1rem 2.6rem; margin: 1.8rem 0 0; }
dl div { display: flex; flex-direction: column-reverse; }
dt { color: var(--quiet); font-size: .85rem; }
dd { margin: 0; font-size: 1.7rem; font-weight: 600; line-height: 1.2; letter-spacing: -.01em; }
dd.o3 { color: var(--o3); } dd.o4 { color: var(--o4); }
ul.legend {
  display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; margin: 0 0 1rem; padding: 0;
  list-style: none; color: var(--quiet); font-size: .85rem;
}
.legend i { display: inline-block; width: .7rem; height: .7rem; margin-right: .45rem; }
.legend i { border-radius: 2px; }
svg { display: block; overflow: visible; }
svg text { fill: var(--quiet); font-size: 13px; }
svg.hours { width: calc(100% - 3.25rem); margin-left: 3.25rem; }
ol.lags { margin: 0; padding: 0; list-style: none; }
.lags li { display: grid; grid-template-columns: 13rem minmax(0, 1fr) 9rem; align-items: center; }
.lags svg { grid-column: 2; width: calc(100% - 3rem); margin: 0 1.5rem; }
.lags b { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-weight: 500; }
.lags b, .lags span { font-size: .9rem; }
.lags span { text-align: right; white-space: nowrap; }
p.note { margin: .8rem 0 0; }
.grid { stroke: var(--line); }
rect.o0 { fill: var(--o0); } rect.o1 { fill: var(--o1); } rect.o2 { fill: var(--o2); }
rect.o3 { fill: var(--o3); } rect.o4 { fill: var(--o4); }
i.o0 { background: var(--o0); } i.o1 { background: var(--o1); } i.o2 { background: var(--o2); }
i.o3 { background: var(--o3); } i.o4 { background: var(--o4); }
.reach { stroke: var(--o1); stroke-width: 4; stroke-linecap: round; }
.median { fill: var(--o0); } .p95 { fill: var(--card); stroke: var(--o0); stroke-width: 2; }
i.median, i.p95 { border-radius: 50%; background: var(--o0); }
i.p95 { background: none; border: 2px solid var(--o0); }
table { width: 100%; margin-top: .8rem; border-collapse: collapse; font-size: .92rem; }
th { color: var(--quiet); font-weight: 500; font-size: .82rem; text-align: left; }
th, td { padding: .5rem .8rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
tr:last-child td { border-bottom: 0; }
.n { text-align: right; white-space: nowrap; }
.zero { color: var(--quiet); opacity: .55; }
.bad { color: var(--o3); font-weight: 600; }
td.why { overflow-wrap: anywhere; }
td small { display: block; color: var(--quiet); font-size: .82rem; overflow-wrap: anywhere; }
time { white-space: nowrap; }
td.key { min-width: 9rem; max-width: 22rem; overflow-wrap: anywhere; font-weight: 500; }
.empty { padding: 4rem 1.6rem; text-align: center; }
.empty p { margin: .3rem 0 0; font-size: 1rem; }
footer { margin-top: 1.6rem; color: var(--quiet); font-size: .85rem; }
@media (max-width: 50rem) {
  body { padding: 1.5rem 1rem 2rem; }
  section { padding: 1rem; }
  h1 { font-size: 1.6rem; }
  .lags li { grid-template-columns: minmax(0, 1fr) auto; column-gap: 1rem; }
  .lags svg { grid-area: 2 / 1 / auto / span 2; }
  thead, td.zero { display: none; }
  table, tbody { display: block; }
  tr { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: .6rem 0; }
  tr { border-bottom: 1px solid var(--line); }
  tr:last-child { border-bottom: 0; }
  td { padding: 0; border: 0; }
  td.key { order: -1; }
  td.key, td.why { flex: 0 0 100%; max-width: none; }
  td.key { font-weight: 600; }
  td[data-head]::before { content: attr(data-head) " "; color: var(--quiet); font-weight: 400; }
}
@media (max-width: 27rem) { .lags li:last-child text:nth-of-type(even) { display: none; } }
@media print { body { padding: 0; } section { break-inside: avoid; } }
"""
