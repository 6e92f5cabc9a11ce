// Package plot draws figures of small panels as SVG: lines over a rate, or bars in groups. A figure
// is a value; the same value gives the same bytes.
//
// A picture is self-contained: it needs no external script, font or style, so it looks the same in
// a browser, in print and in a paper. Colours are those of Okabe and Ito, which colour-blind people
// can tell apart; each series also has its own shape, for grey prints.
//
//	filled shape    a run that kept up         whisker   least to greatest of the trials
//	hollow shape    one that did not           red cross void: its answer is wrong
package plot
