# SPDX-License-Identifier: Apache-2.0
#
# roofline.gp: flops per second against arithmetic intensity. ARG7 and ARG8 are the read and the gather roof in GB/s
# (gather 0: not measured). ARG9 is the arithmetic roof in GFLOP/s, or the FP8 and the bf16 matrix roof of a GPU.
# Columns: flops per byte, GFLOP/s, context.
high = 600
data = ARG1; picture = ARG2; form = ARG3 # load replaces the arguments
dir = ""; do for [k = 1:strlen(ARG0)] { if (ARG0[k:k] eq "/") { dir = ARG0[1:k] } }
load dir."common.gp"

n = words(ARG6); read = real(ARG7); gather = real(ARG8); peak = real(word(ARG9, 1))
second = words(ARG9) > 1 ? real(word(ARG9, 2)) : 0
colour(s) = has(s, "/auto/") ? black : has(s, "fnuz") ? purple : has(s, "e4m3") ? blue : vermillion
filled(s) = !has(s, "/fp8") || has(s, "/fp8_") && s[strlen(s) - 3:] ne "/fp8"
shape(s) = has(s, "decode/") ? (filled(s) ? 7 : 6) : has(s, "append/") ? (filled(s) ? 9 : 8) \
         : has(s, "store/") ? (filled(s) ? 13 : 12) : (filled(s) ? 5 : 4)

# The unit for a GPU is TFLOP/s.
unit = peak >= 1e5 ? 1000.0 : 1.0; unit_name = unit > 1 ? "TFLOP/s" : "GFLOP/s"
peak = peak / unit; second = second / unit
slope = read / unit; gather_slope = gather / unit
stats data using 1:(column(2) / unit) nooutput
ridge = peak / slope
low = 0.3 * (STATS_min_x < ridge ? STATS_min_x : ridge); top = 4 * (STATS_max_x > ridge ? STATS_max_x : ridge)
bottom = 0.5 * (STATS_min_y < low * slope ? STATS_min_y : low * slope)
set logscale xy
set xrange [low:top]
set yrange [bottom:2.2 * peak]
set samples 400
set xtics () scale 0.6; set ytics () scale 0.6
do for [e = -3:6] { do for [m in "1 2 5"] {
    set xtics add (sprintf("%g", m * 10.0**e) m * 10.0**e); set ytics add (sprintf("%g", m * 10.0**e) m * 10.0**e) } }
if (log10(top / low) > 3) { set xtics (); do for [e = -3:6] { set xtics add (sprintf("%g", 10.0**e) 10.0**e) } }
if (log10(2.2 * peak / bottom) > 3) { set ytics (); do for [e = -3:7] { set ytics add (sprintf("%g", 10.0**e) 10.0**e) } }
columns = 2
foot = (18 + 19.0 * ceil((n + 2 + (second > 0)) / 2.0)) / high
set multiplot title ARG4."\n".ARG5 noenhanced
set lmargin at screen 76.0 / wide; set rmargin at screen 1 - 16.0 / wide
set bmargin at screen foot + 52.0 / high; set tmargin at screen 1 - 58.0 / high
unset key
set xlabel "arithmetic intensity: flops per byte of K and V"
set label 1 unit_name at screen 16.0 / wide, graph 0.5 center rotate
least(a, b) = a < b ? a : b
rest(s) = s[strstrt(s, "/") + 1:]
name(s) = s[1:strstrt(s, "/") - 1].", ".dtype_name(rest(s)[1:strstrt(rest(s), "/") - 1]).", path ".rest(rest(s))
plot least(slope * x, peak) with lines lc rgb grey lw 2 notitle, \
     (second > 0 && slope * x > second ? second : NaN) with lines lc rgb grey lw 2 dt 3 notitle, \
     (gather > 0 ? least(gather_slope * x, peak) : NaN) with lines lc rgb grey lw 2 dt 4 notitle, \
     for [i = 1:n] data index i - 1 using 1:(column(2) / unit) with points lc rgb colour(word(ARG6, i)) lw 1.4 \
         pt shape(word(ARG6, i)) ps 1.1 notitle
load dir."legend.gp"
peak_name = (second > 0 ? "FP8 matrix" : "FMA").sprintf(" %.4g ", peak).unit_name
plot NaN with lines lc rgb grey lw 2 title sprintf("read %.4g GB/s, ", read).peak_name, \
     for [k = 1:(second > 0)] NaN with lines lc rgb grey lw 2 dt 3 title sprintf("bf16 matrix %.4g ", second).unit_name, \
     for [k = 1:(gather > 0)] NaN with lines lc rgb grey lw 2 dt 4 title sprintf("gather %.4g GB/s", gather), \
     for [i = 1:n] NaN with points lc rgb colour(word(ARG6, i)) lw 1.4 pt shape(word(ARG6, i)) ps 1.1 \
         title name(word(ARG6, i))
unset multiplot
