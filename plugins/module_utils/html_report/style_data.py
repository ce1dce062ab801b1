# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The style of the page: colors for light and dark, narrow and wide windows, and paper."""

from __future__ import annotations

#: Colors on the backgrounds page and panel. A unit test verifies their contrast.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f3f5f8",
    "text": "#1b1f24",
    "muted": "#515a65",
    "line": "#c6ced8",
    "link": "#0550ae",
    "error": "#b42318",
    "warning": "#7d4e00",
    "good": "#116329",
    "s0": "#0550ae",
    "s1": "#a0337a",
    "s2": "#116329",
    "s3": "#953800",
}
DARK = {
    "page": "#10141a",
    "panel": "#1a2029",
    "text": "#e6edf3",
    "muted": "#a5b0bc",
    "line": "#3b4552",
    "link": "#79c0ff",
    "error": "#ff938a",
    "warning": "#e8b949",
    "good": "#63d577",
    "s0": "#79c0ff",
    "s1": "#ff9bce",
    "s2": "#7ee787",
    "s3": "#ffb077",
}
#: The number of colors for the lines of a plot.
SERIES = sum(name.startswith("s") and name[1:].isdigit() for name in LIGHT)
#: The number of shades in a heat map, and the largest part of the first line's color in them.
HEAT, _DEEPEST = 6, 0.4


def heat(colors: dict[str, str], level: int) -> str:
    """Return a shade of a heat map: the page with a part of the first line's color."""
    part = _DEEPEST * level / (HEAT - 1)
    channels = ([int(colors[name][place : place + 2], 16) for name in ("page", "s0")] for place in (1, 3, 5))
    return "#" + "".join(f"{round(page + part * (color - page)):02x}" for page, color in channels)


def _variables(colors: dict[str, str]) -> str:
    shades = {f"h{level}": heat(colors, level) for level in range(HEAT)}
    return "".join(f"--{name}:{value};" for name, value in {**colors, **shades}.items())


STYLE = f"""
:root{{color-scheme:light dark;{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%}}
body{{margin:0;background:var(--page);color:var(--text);font:1rem/1.5 system-ui,sans-serif}}
header,main{{max-width:78rem;margin:0 auto;padding:0 1.25rem}}
h1{{font-size:1.7rem;line-height:1.25;margin:1.5rem 0 .25rem;overflow-wrap:anywhere}}
h2{{font-size:1.3rem;margin:2.5rem 0 .75rem;padding-top:1rem;border-top:1px solid var(--line)}}
h3{{font-size:1.05rem;margin:1.5rem 0 .5rem;overflow-wrap:anywhere}}
h4{{font-size:1rem;margin:0;overflow-wrap:anywhere;display:flex;flex-wrap:wrap;align-items:baseline;gap:0 .6rem}}
h4 small{{font-weight:400;margin-left:auto}}
p{{margin:.5rem 0;max-width:70ch;overflow-wrap:anywhere}}
a{{color:var(--link)}}
a:focus-visible,.scroll:focus-visible{{outline:3px solid var(--link);outline-offset:2px}}
code,bdi{{unicode-bidi:isolate}}
code{{font:.92em/1.4 ui-monospace,monospace;overflow-wrap:anywhere}}
nav ul{{list-style:none;margin:1rem 0 0;padding:0;display:flex;flex-wrap:wrap;gap:.4rem 1.1rem}}
.muted,caption,figcaption{{color:var(--muted)}}
.error{{color:var(--error)}} .warning{{color:var(--warning)}} .good{{color:var(--good)}}
.status{{font-size:1.2rem;font-weight:700;margin:.75rem 0;padding:.7rem 1rem;background:var(--panel);
border-left:.4rem solid currentColor;border-radius:.3rem;max-width:none}}
dl{{margin:.75rem 0;display:grid;gap:.3rem}}
dl>div{{display:grid;grid-template-columns:9.5rem minmax(0,1fr);gap:.75rem}}
dt{{color:var(--muted);overflow-wrap:anywhere;min-width:0}}
dd{{margin:0;overflow-wrap:anywhere;unicode-bidi:isolate}}
article{{background:var(--panel);border-left:.3rem solid var(--line);border-radius:.3rem;
padding:.6rem 1rem;margin:.6rem 0;break-inside:avoid}}
article dl{{margin:.4rem 0 0;gap:.1rem;font-size:.93rem}}
article.error{{border-color:var(--error)}} article.warning{{border-color:var(--warning)}}
article.error,article.warning{{color:var(--text)}}
article.error .badge{{color:var(--error)}} article.warning .badge{{color:var(--warning)}}
.badge{{font-weight:700}}
.found{{margin:.3rem 0;padding:0;list-style:none}}
.found li{{padding:.15rem 0;overflow-wrap:anywhere;unicode-bidi:isolate}}
.found b{{margin-right:.6rem}}
.scroll{{overflow-x:auto;margin:.75rem 0}}
table{{border-collapse:collapse;font-size:.9rem;min-width:100%}}
caption{{text-align:left;overflow-wrap:anywhere;padding:.25rem 0;font-size:.9rem}}
th,td{{text-align:left;vertical-align:top;padding:.35rem .7rem .35rem 0;border-bottom:1px solid var(--line);
overflow-wrap:break-word;unicode-bidi:isolate;min-width:5.5rem;max-width:26rem}}
thead th{{color:var(--muted);font-weight:600}}
tbody th{{font-weight:600;min-width:9rem}}
.figures th,.figures td{{min-width:0;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
.names th:first-child{{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:8rem}}
.names thead th{{white-space:normal;overflow-wrap:normal}}
.sentences tbody th{{font-weight:400}}
.heat td{{border:1px solid var(--page);padding-left:.7rem;print-color-adjust:exact}}
.heat thead th{{min-width:5.5rem}}
{"".join(f".h{level}{{background:var(--h{level})}}" for level in range(HEAT))}
.diagram svg{{display:block;max-width:100%;height:auto}}
.plots{{display:flex;flex-wrap:wrap;gap:1.25rem}}
figure{{margin:0;flex:1 1 20rem;max-width:34rem;min-width:0}}
figure svg{{display:block;width:100%;height:auto}}
.s0{{color:var(--s0)}} .s1{{color:var(--s1)}} .s2{{color:var(--s2)}} .s3{{color:var(--s3)}}
.axis{{color:var(--muted)}}
meter{{width:8rem;max-width:40%;height:.9rem;vertical-align:baseline}}
main{{padding-bottom:3rem}}
@media screen and (max-width:37.5rem){{
.scroll,table,caption,tbody,tr,th,td{{display:block}}
.scroll{{overflow:visible}}
thead{{display:none}}
tr{{padding:.4rem 0;border-bottom:1px solid var(--line)}}
th,td,tbody th,.figures th,.figures td,.heat td{{border:0;padding:.1rem 0;min-width:0;max-width:none;text-align:left;
white-space:normal;overflow-wrap:anywhere}}
td[data-label]::before,.figures tbody th::before{{content:attr(data-label) ": ";color:var(--muted);font-weight:400}}
}}
@media (max-width:40rem){{
header,main{{padding:0 .9rem}}
dl>div{{grid-template-columns:minmax(0,1fr);gap:0}}
dl{{gap:.5rem}}
h1{{font-size:1.4rem}}
h4 small{{margin-left:0}}
}}
@media print{{
:root{{color-scheme:light;{_variables(LIGHT)}}}
@page{{size:A4;margin:14mm}}
:root{{font-size:10pt}} body{{line-height:1.4}}
header,main{{max-width:none;padding:0}}
nav{{display:none}}
h1,h2,h3,h4,caption{{break-after:avoid}}
tr,figure,.diagram{{break-inside:avoid}}
.scroll{{overflow:visible}}
th,td,tbody th{{min-width:0;overflow-wrap:anywhere}}
.figures th{{white-space:normal;overflow-wrap:normal}}
table{{font-size:8pt}} th,td{{padding-right:.4rem}}
.diagram svg{{max-width:100%;max-height:250mm;width:auto;height:auto}}
article,.status{{background:none;border-style:solid;border-width:1px 1px 1px .3rem}}
a[href^="https"]::after{{content:" (" attr(href) ")";overflow-wrap:anywhere;font-size:8pt}}
}}
""".strip()
