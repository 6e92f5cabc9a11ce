// Package chooser decides whether the keys of a stage have clocks of their own (package watermark), by what
// its tasks measure. It decides nothing else: what is late with either clock, and where in the log a change
// takes effect, is not its business.
//
// Promises:
//
//  1. Between two changes there are 30 s at least.
//  2. Clocks of keys are only chosen if those of the fullest task fit into the memory that they may have.
//  3. Their delay is never below the one that the job's author gives, and covers all but 1 of 10 000 of the items
//     that were measured.
//  4. Data that lie between the two clocks leave the choice as it is.
package chooser
