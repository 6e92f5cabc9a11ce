// Package draw makes a random job of a seed. The same seed makes the same job, as long as
// this package is the same.
//
// Sizes, gaps and times are multiples of one unit most of the time, so that windows close
// where others end, timers coincide, and items lie on edges. Every seed has a theme, an
// operator that the job must have, so that none is rare.
package draw
