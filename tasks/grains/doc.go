// Package grains chooses the grain of a stage of a running job, whose stream has WatermarkPer(Auto): a Chooser reads
// what the stage's tasks have measured, a core of package operators/watermark/chooser decides, and the job is asked
// to switch.
//
// A job in one process, and the leading manager for a job on workers, is the Job of a Chooser. What a Chooser has learned
// is in memory only: in a later process of the job, or with another manager, it begins with the grain that the log has, and no
// measurement.
//
// # Invariants
//
//  1. While key groups move, or a savepoint is made, nothing is decided: what is measured meanwhile counts behind it.
//  2. A grain that another has asked for stays for as long as one that the Chooser has asked for would.
//  3. Nothing of what a Chooser does decides what a row is, given a delay that allows for the disorder of keys: grains
//     are in the log, and only they decide what is late.
package grains
