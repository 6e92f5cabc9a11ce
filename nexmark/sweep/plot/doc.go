// Package plot draws figures of small panels as SVG: lines over a rate, or bars in
// groups. A figure is a value; the same value gives the same bytes.
//
// A picture stands alone: it needs no script, font or style from elsewhere, so it shows
// the same in a browser, in print and in a paper. Colours are those of Okabe and Ito,
// which colour-blind people can tell apart; each series has a shape of its own as well,
// for grey prints.
//
//	filled shape    a run that kept up         whisker   least to greatest of the trials
//	hollow shape    one that did not           red cross void: its answer is wrong
package plot
