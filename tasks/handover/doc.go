// Package handover moves key groups between the tasks of a stage while the job runs, as package
// rescale decides (paper 004, Meces; docs/adr/0053). It is the part that reads, appends and waits: a
// mover in each task of a stage that can be rescaled, and in one process of the job the part that
// appends plans (Rescale).
//
// Key groups move whole. A receiver in the giver's process takes over the memory of a group as it is,
// whatever its size (docs/adr/0057); another one gets a copy from there (docs/adr/0066), or restores the
// group from the checkpoint store and the change log, as a restart does, up to the giver's release.
//
// The package can be deleted: only package tasks imports it, to fill runtime.Config.Handover.
package handover
