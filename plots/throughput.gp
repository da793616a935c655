# SPDX-License-Identifier: Apache-2.0
#
# throughput.gp: rate against context with the interquartile range, and the measured roofs. ARG7 is cold, hot, store,
# flops, or matrix (flops of a GPU). Columns: context, rate, slow quartile, fast quartile (1e9/s). The last block holds
# the roofs, as means over the lines: context, read, gather of bf16, gather of FP8, cache, arithmetic, copy (1e9/s).
data = ARG1; picture = ARG2; form = ARG3 # load replaces the arguments
dir = ""; do for [k = 1:strlen(ARG0)] { if (ARG0[k:k] eq "/") { dir = ARG0[1:k] } }
# Names with kernels are long: then the key has one column, and the picture is higher.
long_names = strstrt(ARG6, "@") > 0
if (long_names) { high = 480 + 19 * (words(ARG6) + 3) }
load dir."common.gp"
load dir."context_axis.gp"

n = words(ARG6)
# A series is DTYPE/PATH, with +q after it where the time to quantise Q is added, and with @NUMBER@KERNEL where several
# kernels were timed. The kernels of a dtype and path differ in the number, which chooses dashes and points.
line(s) = strstrt(s, "@") ? s[1:strstrt(s, "@") - 1] : s
rest(s) = strstrt(s, "@") ? s[strstrt(s, "@") + 1:] : ""
number(s) = strlen(rest(s)) ? int(rest(s)[1:strstrt(rest(s), "@") - 1]) : 0
kernel(s) = strlen(rest(s)) ? rest(s)[strstrt(rest(s), "@") + 1:] : ""
with_q(s) = has(line(s), "+q")
path(s) = line(s)[strstrt(s, "/") + 1 : strlen(line(s)) - 2 * with_q(s)]
colour(s) = has(line(s), "auto") ? black : has(line(s), "fnuz") ? purple : has(line(s), "e4m3") ? blue : vermillion
dash(s) = with_q(s) ? 3 : number(s) ? 3 + number(s) % 3 : path(s) eq "fp8" ? 2 : 1
usual(s) = has(line(s), "auto") ? 5 : has(line(s), "fnuz") ? (path(s) eq "fp8" ? 12 : 13) \
         : has(line(s), "e4m3") ? (path(s) eq "fp8" ? 6 : 7) : (path(s) eq "fp8" ? 8 : 9)
shape(s) = with_q(s) ? 1 : number(s) ? int(word("2 3 10 11 14 15", 1 + (number(s) - 1) % 6)) : usual(s)
name(s) = dtype_name(line(s)[1:strstrt(s, "/") - 1]).(path(s) eq "none" ? "" : ", path ".path(s)) \
        .(with_q(s) ? " with Q" : "").(strlen(kernel(s)) ? ", ".kernel(s) : "")

# The measured roofs, at most three; a roof that was not measured must not have a name in the key. The gather roofs of
# bf16 and FP8 are one line where they differ by less than 3 %.
math = ARG7 eq "flops" || ARG7 eq "matrix"
wanted = math ? "6" : ARG7 eq "hot" ? "5" : ARG7 eq "store" ? "7" : "2 3 4"
roof_name(c) = c == 2 ? "read roof" : c == 3 ? (alike ? "gather roof" : "gather roof, bf16") \
             : c == 4 ? (alike == 1 ? "gather roof" : "gather roof, FP8") \
             : c == 5 ? "cache roof" : c == 7 ? "copy roof" : ARG7 eq "matrix" ? "matrix roof" : "FMA roof"
roof_dash(c) = c == 3 ? 4 : c == 4 ? (alike ? 4 : 3) : 1
alike = 0
apart = 0
stats data index n using (valid(3) && valid(4) ? abs(column(3) / column(4) - 1) : NaN) nooutput
if (records(0) > 0) { apart = STATS_max; alike = apart < 0.03 }
roofs = ""
do for [k = 1:words(wanted)] {
    c = int(word(wanted, k))
    undefine STATS_*
    stats data index n using c nooutput
    if (records(0) > 0 && !(c == 4 && alike)) { roofs = roofs.(strlen(roofs) ? " " : "").sprintf("%d", c) }
}
m = words(roofs)
# A single gather roof needs no dtype in its name.
if (!has(roofs, "3") || !has(roofs, "4")) { alike = 1 }
roof(k) = k > words(roofs) ? 2 : int(word(roofs, k)) # gnuplot evaluates the first turn of a loop without turns

columns = long_names ? 1 : 2
foot = (18 + 19.0 * ceil((n + m) / (1.0 * columns))) / high
set multiplot title ARG4."\n".ARG5 noenhanced
set rmargin at screen 1 - 16.0 / wide
set bmargin at screen foot + 52.0 / high; set tmargin at screen 1 - 58.0 / high
unset key
set xlabel "context, keys per sequence"
# at a fixed place, independent of the width of the tics
set label 1 math ? "GFLOP/s" : ARG7 eq "store" ? "read and written, GB/s" : "K and V payload, GB/s" \
    at screen 16.0 / wide, graph 0.5 center rotate

# The axis reaches to the ends of the bars and to the highest roof that is drawn. A roof of 10 times the highest rate or
# more would press the rates onto the axis: it is not drawn, and the key gives its value.
set yrange [*:*]
top_rate = 0
do for [c in "2 4"] { undefine STATS_*
    stats data index 0:n - 1 using int(c) nooutput
    if (records(0) > 0 && STATS_max > top_rate) { top_rate = STATS_max } }
highest = top_rate
drawn = ""; beside = "" # roofs that are drawn; value after the name of each roof, - for none
do for [k = 1:m] { undefine STATS_*
    stats data index n using roof(k) nooutput
    if (STATS_max < 10 * top_rate) {
        drawn = drawn." ".word(roofs, k); beside = beside." -"
        if (STATS_max > highest) { highest = STATS_max }
    } else { beside = beside.sprintf(STATS_mean < 1000 ? " %.3g" : " %.0f", STATS_mean) } }
key_name(k) = roof_name(roof(k)).(word(beside, k) eq "-" ? "" : " (".word(beside, k).", off the scale)")
set yrange [0 : 1.08 * highest]
set lmargin at screen (highest < 1000 ? 76.0 : 92.0) / wide # room for the labels of the tics
if (octaves < 0.5) { # a single context: its roofs are drawn over the whole width
    do for [k = 1:words(drawn)] { c = int(word(drawn, k))
        stats data index n using c nooutput
        set arrow from graph 0, first STATS_mean to graph 1, first STATS_mean nohead lc rgb grey lw 2 dt roof_dash(c) }
}
# gnuplot evaluates the first turn of a loop even if the loop has no turns.
roof_drawn(k) = k > words(drawn) ? 2 : int(word(drawn, k))
plot for [k = 1:words(drawn)] data index n using 1:(column(roof_drawn(k))) with lines lc rgb grey lw 2 dt roof_dash(roof_drawn(k)) notitle, \
     for [i = 1:n] data index i - 1 using 1:2:3:4 with yerrorbars lc rgb colour(word(ARG6, i)) lw 1 pt 0 notitle, \
     for [i = 1:n] data index i - 1 using 1:2 with linespoints lc rgb colour(word(ARG6, i)) \
         lw 1.8 dt dash(word(ARG6, i)) pt shape(word(ARG6, i)) ps 0.9 notitle
load dir."legend.gp"
plot for [k = 1:m] NaN with lines lc rgb grey lw 2 dt roof_dash(roof(k)) title key_name(k), \
     for [i = 1:n] NaN with linespoints lc rgb colour(word(ARG6, i)) lw 1.8 dt dash(word(ARG6, i)) \
         pt shape(word(ARG6, i)) ps 0.9 title name(word(ARG6, i))
unset multiplot
