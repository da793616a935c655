# SPDX-License-Identifier: Apache-2.0
#
# error.gp: quantisation error (upper row of panels) and kernel error (lower row) against context. One column of
# panels per dtype (ARG7), one line per scheme, calibration and, for predictions, accumulator (ARG6). ARG8 is 1 if the
# last block holds auto (bf16), whose kernel error is drawn for comparison.
# Columns: context, quantisation error, kernel error (relative L2, percent). Blocks: dtype by dtype, line by line.
panels = words(ARG7); n = words(ARG6); has_auto = int(ARG8)
longest = 0
do for [i = 1:n] { longest = strlen(word(ARG6, i)) > longest ? strlen(word(ARG6, i)) : longest }
columns = longest > 34 && panels == 1 ? 1 : longest > 26 || panels == 1 ? 2 : 3 # columns of the legend
wide = panels == 1 ? 760 : panels == 2 ? 1000 : 1300
high = 620 + 19 * ceil(n / (columns == 1 ? 1.0 : 3.0)); crowded = panels > 1 ? 7 : 11
data = ARG1; picture = ARG2; form = ARG3 # load replaces the arguments
dir = ""; do for [k = 1:strlen(ARG0)] { if (ARG0[k:k] eq "/") { dir = ARG0[1:k] } }
load dir."common.gp"
load dir."context_axis.gp"

# A name with /hopper... is a prediction on a model of the FP8 unit: one colour per interval between flushes.
colour(s) = has(s, "two_level:64") ? orange : has(s, "two_level:16") ? purple : has(s, "two_level:") ? sky \
          : has(s, "two_level") ? blue : has(s, "/hopper") ? vermillion : has(s, "memoryless") ? purple : has(s, "/minmax") ? orange : has(s, "dataset") ? green \
          : has(s, "random_tokens") ? blue : vermillion
dash(s) = has(s, "per_head") ? 2 : 1
open(s) = has(s, "per_head")
shape(s) = has(s, "two_level:64") ? 11 : has(s, "two_level:16") ? 13 : has(s, "two_level:") ? 3 : has(s, "two_level") ? 9 \
         : has(s, "/hopper") ? 7 : has(s, "memoryless") ? (open(s) ? 12 : 13) : has(s, "/minmax") ? (open(s) ? 10 : 11) \
         : has(s, "dataset") ? (open(s) ? 4 : 5) : has(s, "random_tokens") ? (open(s) ? 8 : 9) : (open(s) ? 6 : 7)
size(s) = open(s) ? 1.35 : 0.85

foot = (18 + 19.0 * ceil(1.0 * (n + has_auto) / columns)) / high
bottom = foot + 52.0 / high; top_edge = 1 - 62.0 / high
left = 78.0 / wide; gap = 22.0 / wide
width = (1 - left - 14.0 / wide - gap * (panels - 1)) / panels
height = (top_edge - bottom - 30.0 / high) / 2
set multiplot title ARG4."\n".ARG5 noenhanced
unset key
do for [row = 0:1] {
    unset logscale y; set yrange [*:*]
    stats data using (column(2 + row)) nooutput
    if (records(0) > 0 && STATS_max > 8 * STATS_min) {
        set logscale y
        set yrange [STATS_min / 1.5 : STATS_max * 2]
        set ytics () scale 0.6
        span = log10(STATS_max / STATS_min) # decades; they decide how many labels fit
        do for [e = -12:3] { do for [m in (span > 2.5 ? "1" : "1 2 5")] { set ytics add (e < -3 ? sprintf("%se%d", m, e) : sprintf("%g", m * 10.0**e) m * 10.0**e) } }
    } else {
        set yrange [0 : records(0) > 0 ? 1.3 * STATS_max : 1]
        set ytics auto scale 0.6
    }
    set bmargin at screen bottom + (1 - row) * (height + 30.0 / high)
    set tmargin at screen bottom + (1 - row) * (height + 30.0 / high) + height
    set xlabel row ? "context, keys per sequence" : ""
    do for [d = 0:panels - 1] {
        set lmargin at screen left + d * (width + gap); set rmargin at screen left + d * (width + gap) + width
        set format y d ? "" : "%g"
        set label 1 word(ARG7, d + 1) at graph 0.02, graph 0.92 left noenhanced
        set label 2 (d ? "" : row ? "kernel error, %" : "quantisation error, %") \
            at screen 16.0 / wide, screen bottom + (1 - row) * (height + 30.0 / high) + 0.5 * height center rotate
        plot for [i = 1:(row ? has_auto : 0)] data index panels * n using 1:3 with lines lc rgb grey lw 2 dt 4 notitle, \
             for [i = 1:n] data index d * n + i - 1 using 1:(column(2 + row)) with linespoints \
                 lc rgb colour(word(ARG6, i)) lw 1.6 dt dash(word(ARG6, i)) pt shape(word(ARG6, i)) \
                 ps size(word(ARG6, i)) notitle
    }
}
load dir."legend.gp"
plot for [i = 1:n] NaN with linespoints lc rgb colour(word(ARG6, i)) lw 1.6 dt dash(word(ARG6, i)) \
         pt shape(word(ARG6, i)) ps size(word(ARG6, i)) title with_commas(word(ARG6, i)), \
     for [i = 1:has_auto] NaN with lines lc rgb grey lw 2 dt 4 title "auto (bf16)"
unset multiplot
