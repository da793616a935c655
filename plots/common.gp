# SPDX-License-Identifier: Apache-2.0
#
# common.gp: settings and functions for every script of this folder. A script is called with
#   gnuplot -d -c SCRIPT DATA.tsv OUTPUT svg|png TITLE DETAIL SERIES [EXTRA...]
# The arguments are:
#   ARG1          the data (here: data)
#   ARG2          the picture (here: picture)
#   ARG3          the format of the picture (here: form)
#   ARG4, ARG5    the two lines of the title
#   ARG6          the names of the lines, separated by spaces; block i of the data belongs to name i
#   ARG7 to ARG9  as the script says
#
# The colours are those of Okabe and Ito, which colour-blind people can tell apart. Line styles and point shapes
# differ too, so that a print in grey can be read.

black = 0x000000; orange = 0xE69F00; sky = 0x56B4E9; green = 0x009E73
blue = 0x0072B2; vermillion = 0xD55E00; purple = 0xCC79A7; grey = 0x808080

wide = exists("wide") ? wide : 900
high = exists("high") ? high : 560
if (form eq "png") {
    set terminal pngcairo size 2*wide,2*high font "Sans,10.5" fontscale 2 linewidth 2 pointscale 2 background rgb "white" noenhanced
} else {
    set terminal svg size wide,high font "Helvetica,Arial,sans-serif,12" background rgb "white" noenhanced
}
set output picture
set datafile separator "\t"
set datafile missing "NaN"
set encoding utf8
set border 3 lc rgb "#404040"
set tics nomirror out
set grid lc rgb "#d8d8d8" lt 1 lw 0.6
set key noenhanced

# Number of points that `stats` found. Without a valid point `stats` leaves its variables undefined.
records(x) = exists("STATS_records") ? STATS_records : 0

has(text, part) = strstrt(text, part) > 0

# Names for the key: "per_tensor/dataset/minmax" is shown as "per_tensor, dataset, minmax".
with_commas(s) = has(s, "/") ? s[1:strstrt(s, "/") - 1].", ".with_commas(s[strstrt(s, "/") + 1:]) : s
dtype_name(s) = s eq "auto" ? "auto (bf16)" : s

# A power of two as a context is usually written: 512, 4k, 1M.
power_label(e) = e < 10 ? sprintf("%d", 2**e) : e < 20 ? sprintf("%dk", 2**(e - 10)) : sprintf("%dM", 2**(e - 20))
log2(x) = log(x) / log(2)
