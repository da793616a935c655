# SPDX-License-Identifier: Apache-2.0
#
# legend.gp: settings for the last plot of a multiplot, which is only the key, at the foot of the picture over its
# whole width. `foot` is the height of the key as a share of the picture; `columns` is the number of names side by
# side.
foot = exists("foot") ? foot : 0.10
columns = exists("columns") ? columns : 4
set lmargin at screen 0.02; set rmargin at screen 0.98; set bmargin at screen 0.005; set tmargin at screen foot
unset xlabel; unset ylabel; unset border; unset tics; unset grid; unset logscale; unset label; unset arrow; unset title; unset colorbox
set xrange [0:1]; set yrange [0:1]
set key center center horizontal maxcols columns samplen 3.5 width 1 Left reverse
