# SPDX-License-Identifier: Apache-2.0
#
# legend.gp: the last plot of a multiplot: nothing but the key, over the whole width at the foot of the page.
# `foot`: height of the strip (a share of the page); `columns`: names side by side.
foot = exists("foot") ? foot : 0.10
columns = exists("columns") ? columns : 4
set lmargin at screen 0.02; set rmargin at screen 0.98; set bmargin at screen 0.005; set tmargin at screen foot
unset xlabel; unset ylabel; unset border; unset tics; unset grid; unset logscale; unset label; unset arrow; unset title; unset colorbox
set xrange [0:1]; set yrange [0:1]
set key center center horizontal maxcols columns samplen 3.5 width 1 Left reverse
