# SPDX-License-Identifier: Apache-2.0
#
# common.gp: what every script of this folder shares. A script is called with
#   gnuplot -d -c SCRIPT DATA.tsv OUTPUT svg|png TITLE DETAIL SERIES [EXTRA...]
# so ARG1 is the data, ARG2 the picture, ARG3 its format (here: data, picture, form), ARG4 and ARG5 the title's two
# lines, and ARG6 the names of the lines, separated by spaces; block i of the data belongs to name i.
#
# Colours are Okabe and Ito's, which the colour-blind can tell apart; line styles and point shapes differ too, so
# that a print in grey can be read.

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

# `stats` without a valid point leaves its variables undefined.
records(x) = exists("STATS_records") ? STATS_records : 0

has(text, part) = strstrt(text, part) > 0

# Powers of two as people write contexts; every second one where there are many.
power_label(e) = e < 10 ? sprintf("%d", 2**e) : e < 20 ? sprintf("%dk", 2**(e - 10)) : sprintf("%dM", 2**(e - 20))
log2(x) = log(x) / log(2)
