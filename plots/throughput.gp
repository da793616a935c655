# SPDX-License-Identifier: Apache-2.0
#
# throughput.gp: rate against context with the interquartile range, and the measured roofs. ARG7: cold, hot or flops.
# Columns: context, rate, slow quartile, fast quartile (1e9/s). The last block holds the roofs, mean over the lines:
# context, read roof, gather roof, cache roof, FMA roof (1e9/s).
data = ARG1; picture = ARG2; form = ARG3 # load hides the arguments
dir = ""; do for [k = 1:strlen(ARG0)] { if (ARG0[k:k] eq "/") { dir = ARG0[1:k] } }
load dir."common.gp"
load dir."context_axis.gp"

n = words(ARG6)
colour(s) = has(s, "auto") ? black : has(s, "fnuz") ? purple : has(s, "e4m3") ? blue : vermillion
dash(s) = has(s, "/fp8") ? 2 : 1
shape(s) = has(s, "auto") ? 5 : has(s, "fnuz") ? (has(s, "/fp8") ? 12 : 13) \
         : has(s, "e4m3") ? (has(s, "/fp8") ? 6 : 7) : (has(s, "/fp8") ? 8 : 9)
name(s) = (has(s, "auto") ? "auto (bf16)" : s[1:strstrt(s, "/") - 1]).(has(s, "/none") ? "" : ", path ".s[strstrt(s, "/") + 1:])

columns = 2
foot = (18 + 19.0 * ceil((n + 2) / 2.0)) / high
set multiplot title ARG4."\n".ARG5 noenhanced
set lmargin at screen 76.0 / wide; set rmargin at screen 1 - 16.0 / wide
set bmargin at screen foot + 52.0 / high; set tmargin at screen 1 - 58.0 / high
unset key
set xlabel "context, keys per sequence"
# at a fixed place, whatever the tics' width
set label 1 ARG7 eq "flops" ? "GFLOP/s" : "K and V payload, GB/s" at screen 16.0 / wide, graph 0.5 center rotate

# A roof that was not measured would leave a name in the key.
first = ARG7 eq "flops" ? 5 : ARG7 eq "hot" ? 4 : 2
second = ARG7 eq "cold" ? 3 : first
roof_name(c) = c == 2 ? "read roof" : c == 3 ? "gather roof" : c == 4 ? "cache roof" : "FMA roof"
stats data index n using first nooutput
has_first = records(0) > 0
stats data index n using second nooutput
has_second = second != first && records(0) > 0
set yrange [*:*]
top_rate = 0
stats data using 2 nooutput # rates, and the read roof of the last block
if (records(0) > 0) { top_rate = STATS_max }
stats data index n using first nooutput
if (records(0) > 0 && STATS_max > top_rate && STATS_max < 20 * top_rate) { top_rate = STATS_max }
set yrange [0 : 1.08 * top_rate]
if (octaves < 0.5) { # one context: its roofs run across the page
    if (has_first) { stats data index n using first nooutput
        set arrow from graph 0, first STATS_mean to graph 1, first STATS_mean nohead lc rgb grey lw 2 }
    if (has_second) { stats data index n using second nooutput
        set arrow from graph 0, first STATS_mean to graph 1, first STATS_mean nohead lc rgb grey lw 2 dt 4 }
}
plot for [k = 1:has_first] data index n using 1:(column(first)) with lines lc rgb grey lw 2 dt 1 notitle, \
     for [k = 1:has_second] data index n using 1:(column(second)) with lines lc rgb grey lw 2 dt 4 notitle, \
     for [i = 1:n] data index i - 1 using 1:2:3:4 with yerrorbars lc rgb colour(word(ARG6, i)) lw 1 pt 0 notitle, \
     for [i = 1:n] data index i - 1 using 1:2 with linespoints lc rgb colour(word(ARG6, i)) \
         lw 1.8 dt dash(word(ARG6, i)) pt shape(word(ARG6, i)) ps 0.9 notitle
load dir."legend.gp"
plot for [k = 1:has_first] NaN with lines lc rgb grey lw 2 dt 1 title roof_name(first), \
     for [k = 1:has_second] NaN with lines lc rgb grey lw 2 dt 4 title roof_name(second), \
     for [i = 1:n] NaN with linespoints lc rgb colour(word(ARG6, i)) lw 1.8 dt dash(word(ARG6, i)) \
         pt shape(word(ARG6, i)) ps 0.9 title name(word(ARG6, i))
unset multiplot
