# SPDX-License-Identifier: Apache-2.0
#
# context_axis.gp: the x axis of contexts, logarithmic to base 2, for column 1 of all blocks of DATA.
stats data using 1 nooutput
low = STATS_min; top = STATS_max
octaves = log2(top / low)
set logscale x 2
set xrange [low / 2**(0.05 * octaves + 0.15) : top * 2**(0.05 * octaves + 0.15)]
set xtics () scale 0.6
crowded = exists("crowded") ? crowded : 11 # number of labels that fit
labels = 0
step = octaves > 2 * crowded ? 4 : octaves > crowded ? 2 : 1
do for [e = 0:30] {
    if ((e % step == 0) && 2**e >= 0.7 * low && 2**e <= 1.42 * top) { set xtics add (power_label(e) 2**e) }
    if ((e % step == 0) && 2**e >= low && 2**e <= top) { labels = labels + 1 }
}
# With fewer than two powers of two in the range, the labels are the smallest and the largest context.
if (octaves < 0.5) { set xtics (sprintf("%d", low) low) } else {
    if (labels < 2) { set xtics (sprintf("%d", low) low, sprintf("%d", top) top) }
}
