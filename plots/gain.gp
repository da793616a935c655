# SPDX-License-Identifier: Apache-2.0
#
# gain.gp: gain (factor between output and reference) against context. One panel per input (ARG7), one line per
# accumulator (ARG6).
# Columns: context, gain. Blocks: panel by panel, line by line.
panels = words(ARG7); n = words(ARG6)
across = panels > 1 ? 2 : 1; down = (panels + across - 1) / across
columns = 2 # columns of the legend
wide = across == 1 ? 760 : 1000
high = 110 + 300 * down + 19 * ceil(n / (1.0 * columns)); crowded = across > 1 ? 7 : 11
data = ARG1; picture = ARG2; form = ARG3 # load replaces the arguments
dir = ""; do for [k = 1:strlen(ARG0)] { if (ARG0[k:k] eq "/") { dir = ARG0[1:k] } }
load dir."common.gp"
load dir."context_axis.gp"

# One colour per interval between flushes, as in error.gp.
colour(s) = has(s, "two_level:64") ? orange : has(s, "two_level:16") ? purple : has(s, "two_level:") ? sky \
          : has(s, "two_level") ? blue : has(s, "hopper") ? vermillion : green
shape(s) = has(s, "two_level:64") ? 11 : has(s, "two_level:16") ? 13 : has(s, "two_level:") ? 3 : has(s, "two_level") ? 9 \
         : has(s, "hopper") ? 7 : 5
name(s) = s eq "fp32" ? "fp32 (the kernel that ran)" : s eq "hopper" ? "hopper: one chain" \
        : s eq "hopper_two_level" ? "hopper_two_level: flushed every tile" \
        : s[1:strstrt(s, ":") - 1].": flushed every ".s[strstrt(s, ":") + 1:]." tiles"

foot = (18 + 19.0 * ceil(1.0 * n / columns)) / high
bottom = foot + 52.0 / high; top_edge = 1 - 62.0 / high
left = 78.0 / wide; gap = 22.0 / wide; rise = 34.0 / high
width = (1 - left - 14.0 / wide - gap * (across - 1)) / across
height = (top_edge - bottom - rise * (down - 1)) / down
set yrange [0:1.15]
set ytics 0.2 scale 0.6
set multiplot title ARG4."\n".ARG5 noenhanced
unset key
do for [p = 0:panels - 1] {
    column = p % across; row = p / across
    lift = bottom + (down - 1 - row) * (height + rise)
    set bmargin at screen lift; set tmargin at screen lift + height
    set lmargin at screen left + column * (width + gap); set rmargin at screen left + column * (width + gap) + width
    set xlabel (p + across >= panels) ? "context, keys per sequence" : ""
    set format y column ? "" : "%.1f"
    set label 1 word(ARG7, p + 1) at graph 0.03, graph 0.08 left noenhanced
    set label 2 (column ? "" : "gain") at screen 18.0 / wide, screen lift + 0.5 * height center rotate
    plot 1 with lines lc rgb grey lw 1 dt 3 notitle, \
         for [i = 1:n] data index p * n + i - 1 using 1:2 with linespoints lc rgb colour(word(ARG6, i)) lw 1.6 \
             pt shape(word(ARG6, i)) ps 0.9 notitle
}
load dir."legend.gp"
plot for [i = 1:n] NaN with linespoints lc rgb colour(word(ARG6, i)) lw 1.6 pt shape(word(ARG6, i)) ps 0.9 \
         title name(word(ARG6, i))
unset multiplot
