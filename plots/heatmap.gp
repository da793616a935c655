# SPDX-License-Identifier: Apache-2.0
#
# heatmap.gp: quantisation error over layers (ARG8, columns) and scheme and calibration (ARG6, lines). One panel per
# dtype (ARG7). Columns of the data: column, line, error in percent. The palette is viridis, whose lightness rises
# steadily, so that it can be read in grey and by colour-blind people. The cells show the numbers where there is room.
panels = words(ARG7); n = words(ARG6); m = words(ARG8)
cell = m <= 6 ? 62 : m <= 12 ? 48 : m <= 40 ? 26 : 12
every_layer = m <= 40 ? 1 : 4
longest = 0
do for [i = 1:n] { longest = strlen(word(ARG6, i)) > longest ? strlen(word(ARG6, i)) : longest }
margin = 24 + 8.2 * longest # pixels for the names of the lines
stacked = m > 12 # panels below each other
across = stacked ? 1 : panels; down = stacked ? panels : 1
body = across * cell * m + 24 * (across - 1)
tall = down * 34 * n + 66 * (down - 1)
wide = margin + body + 96; wide = wide < 560 ? 560 : wide
high = 152 + tall
data = ARG1; picture = ARG2; form = ARG3 # load replaces the arguments
dir = ""; do for [k = 1:strlen(ARG0)] { if (ARG0[k:k] eq "/") { dir = ARG0[1:k] } }
load dir."common.gp"

set palette defined (0 "#440154", 1 "#472c7a", 2 "#3b518b", 3 "#2c718e", 4 "#21908d", 5 "#27ad81", 6 "#5cc863", \
                     7 "#aadc32", 8 "#fde725")
stats data using 3 nooutput
low = records(0) > 0 ? STATS_min : 0.1; top = records(0) > 0 ? STATS_max : 1
if (top < 1.02 * low) { low = 0.99 * low; top = 1.01 * top }
if (top <= low) { top = low + 1 }
# A scale that clips has an error many times the others: a logarithmic scale keeps the others apart.
logarithmic = low > 0 && top > 6 * low
if (logarithmic) {
    set logscale cb
    set cbtics ()
    do for [e = -6:3] { do for [k in "1 2 5"] { set cbtics add (sprintf("%g", k * 10.0**e) k * 10.0**e) } }
}
if (!logarithmic && 34 * n < 100) { set cbtics (sprintf("%.3g", low) low, sprintf("%.3g", top) top) }
set cbrange [low:top]
middle = logarithmic ? sqrt(low * top) : 0.5 * (low + top)
set xrange [-0.5:m - 0.5]
set yrange [n - 0.5:-0.5]
set xtics () scale 0
do for [i = 1:m:every_layer] { set xtics add (word(ARG8, i) i - 1) }
set ytics () scale 0
unset grid
unset border
unset key
set style fill solid noborder # a cell without a row stays white
set cblabel "error, %" offset 1
left = 1.0 * margin / wide; right = (margin + body) / wide; head = 1 - 84.0 / high; foot = 58.0 / high
set multiplot layout down,across margins left,right,foot,head spacing 24.0 / wide,66.0 / high title ARG4."\n".ARG5 noenhanced
do for [d = 0:panels - 1] {
    if (d == 0 || stacked) { do for [i = 1:n] { set ytics add (with_commas(word(ARG6, i)) i - 1) } } else { set ytics (); set format y "" }
    if (d == panels - 1) { set colorbox user origin screen right + 14.0 / wide, screen foot size screen 14.0 / wide, screen head - foot } else { unset colorbox }
    set xlabel (stacked && d < panels - 1) ? "" : "layer"
    set label 1 word(ARG7, d + 1) at graph 0.5, graph 1 + 11.0 / (34 * n) center noenhanced
    plot data index d using 1:2:($1 - 0.5):($1 + 0.5):($2 - 0.5):($2 + 0.5):3 with boxxyerror lc palette, \
         data index d using 1:2:(m <= 12 && $3 < middle ? sprintf($3 < 10 ? "%.2f" : "%#.3g", $3) : "") with labels tc rgb "white" font ",10", \
         data index d using 1:2:(m <= 12 && $3 >= middle ? sprintf($3 < 10 ? "%.2f" : "%#.3g", $3) : "") with labels tc rgb "black" font ",10"
}
unset multiplot
