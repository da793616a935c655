# SPDX-License-Identifier: Apache-2.0
#
# footprint.gp: memory of one layer against context. Columns: context, MiB, bytes per token, tokens per GiB.
high = 560; crowded = 7
data = ARG1; picture = ARG2; form = ARG3 # load replaces the arguments
dir = ""; do for [k = 1:strlen(ARG0)] { if (ARG0[k:k] eq "/") { dir = ARG0[1:k] } }
load dir."common.gp"
load dir."context_axis.gp"

n = words(ARG6)
colour(s) = has(s, "auto") ? black : has(s, "fnuz") ? purple : has(s, "e4m3") ? blue : vermillion
dash(s) = has(s, "e5m2") ? 2 : 1
shape(s) = has(s, "auto") ? 5 : has(s, "fnuz") ? 13 : has(s, "e4m3") ? 7 : 8
size(s) = has(s, "e5m2") ? 1.7 : 0.9

set multiplot title ARG4."\n".ARG5 noenhanced
set tmargin at screen 0.86; set bmargin at screen 0.22
set xlabel "context, keys per sequence"
unset key
set lmargin at screen 0.08; set rmargin at screen 0.49
set ylabel "MiB" offset 1
set logscale y 2
stats data using 2 nooutput
ylow = records(0) > 0 ? STATS_min : 1; ytop = records(0) > 0 ? STATS_max : 1
set yrange [ylow / 1.6 : ytop * 1.6]
set ytics () scale 0.6
ystep = log2(ytop / ylow) > 20 ? 4 : log2(ytop / ylow) > 10 ? 2 : 1
mib(e) = e >= 0 ? sprintf("%d", 2**e) : sprintf("1/%d", 2**(-e))
do for [e = -20:20] {
    if ((e + 20) % ystep == 0 && 2.0**e >= 0.62 * ylow && 2.0**e <= 1.6 * ytop) { set ytics add (mib(e) 2.0**e) }
}
plot for [i = 1:n] data index i - 1 using 1:2 with linespoints lc rgb colour(word(ARG6, i)) lw 1.8 \
         dt dash(word(ARG6, i)) pt shape(word(ARG6, i)) ps size(word(ARG6, i)) notitle
set lmargin at screen 0.58; set rmargin at screen 0.985
unset logscale y
set ytics auto
set yrange [*:*]
stats data using 3 nooutput
set yrange [0 : records(0) > 0 ? 1.15 * STATS_max : 1]
set ylabel "bytes per token"
plot for [i = 1:n] data index i - 1 using 1:3 with linespoints lc rgb colour(word(ARG6, i)) lw 1.8 \
         dt dash(word(ARG6, i)) pt shape(word(ARG6, i)) ps size(word(ARG6, i)) notitle
load dir."legend.gp"
plot for [i = 1:n] NaN with linespoints lc rgb colour(word(ARG6, i)) lw 1.8 dt dash(word(ARG6, i)) \
         pt shape(word(ARG6, i)) ps size(word(ARG6, i)) title dtype_name(word(ARG6, i))
unset multiplot
